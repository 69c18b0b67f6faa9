// Saved states of a machine's files, what differs between them, and the way back to one.
import { call } from "./api.js";
import { button, confirm, menu } from "./controls.js";
import { h, icon, replace } from "./dom.js";
import { announce, emptyState } from "./messages.js";
import { listing } from "./table.js";
import { bytes, capital, count, state, when } from "./text.js";

const KINDS = { added: "good", changed: "busy", removed: "bad" };

export function checkpointsPanel(machine) {
  const { name } = machine;
  const [viewer, trouble] = [h("div", {}), h("div", {})];

  // Where a branch begins, the step says what it continues from.
  const place = (it) => it.parent && it.parent !== it.checkpoint - 1 ? `${it.checkpoint}, after ${it.parent}` : String(it.checkpoint);
  const choices = (it) => [
    it.parent && { text: "Show its changes", work: () => compare(it.parent, it.checkpoint) },
    !it.current && { text: "Compare with the current one", work: () => compare(it.checkpoint, current()) },
    { text: "Go back here…", danger: true, work: () => goBack(it) },
  ];
  const columns = [
    { title: "Step", kind: "lead", sort: (it) => it.checkpoint, cell: (it) => h("span", { class: "stack" }, h("code", { class: "command" }, it.note || "checkpoint"), h("span", { class: "minor" }, place(it))) },
    { title: "State", cell: (it) => it.current ? state("Current", "good") : "" },
    { title: "Changes", kind: "num", sort: (it) => it.changes, cell: (it) => it.changes.toLocaleString("en") },
    { title: "Size", kind: "num low", sort: (it) => it.size_bytes, cell: (it) => bytes(it.size_bytes) },
    { title: "Saved", sort: (it) => it.created, cell: (it) => when(it.created) },
    { title: "Actions", kind: "last", cell: (it) => menu(`Actions of step ${it.checkpoint}`, () => choices(it), { key: `step ${it.checkpoint}` }) },
  ];
  const list = listing({
    caption: "Saved states of this machine", columns, text: (it) => `${it.checkpoint} ${it.note}`, sort: { column: 0, down: true },
    tools: [button("Save now", save, { "data-key": "save checkpoint" })],
    empty: () => emptyState("check", "Nothing is saved yet", "A saved state of the files is a way back from a mistake.", button("Save now", save, { class: "primary", "data-key": "save first" })),
  });

  let all = [];
  const current = () => all.find((it) => it.current)?.checkpoint;

  async function refresh() {
    replace(trouble);
    try {
      ({ checkpoints: all } = await call("timeline", { container: name }));
      list.show(all);
    } catch (error) {
      if (error.code !== "unsupported") return list.fail(error);
      list.element.hidden = true;
      replace(trouble, h("div", { class: "card" }, emptyState("box", "No saved states", `${error.message}. ${capital(error.hint || "")}.`)));
    }
  }

  async function save() {
    const { checkpoint, changed } = await call("checkpoint", { container: name });
    announce(changed ? `Checkpoint ${checkpoint} is saved.` : `Nothing has changed since checkpoint ${checkpoint}.`);
    await refresh();
  }

  async function goBack(it) {
    const text = `${name} gets the files of step ${it.checkpoint} and starts again: what runs in it ends. What it has now is saved before.`;
    if (!await confirm(`Go back to step ${it.checkpoint}?`, text, "Go back")) return;
    const { before } = await call("rewind", { container: name, checkpoint: it.checkpoint });
    announce(`${name} has the files of step ${it.checkpoint}. Step ${before} has those that it had before.`);
    replace(viewer);
    await refresh();
  }

  async function compare(from, to) {
    const { changes, count: number, truncated } = await call("checkpoint_diff", { container: name, checkpoint: from, other_checkpoint: to });
    const row = (it) => h("li", {}, state(capital(it.change), KINDS[it.change]), " ", h("code", {}, it.path), h("span", { class: "minor" }, ` ${bytes(it.size_bytes)}`));
    const close = h("button", { type: "button", class: "quiet", "aria-label": "Close the changes", onclick: () => replace(viewer) }, icon("close"));
    replace(viewer, h("section", { class: "card viewer", "aria-label": `Changes from step ${from} to ${to}` },
      h("div", { class: "toolbar" }, h("h3", {}, `From step ${from} to ${to}: ${count(number, "change")}`), close),
      changes.length === 0 ? h("p", { class: "empty" }, "Both have the same files.") : h("ul", { class: "notes" }, changes.map(row)),
      truncated && h("p", { class: "help" }, `The first ${changes.length} are shown.`)));
    viewer.scrollIntoView({ block: "nearest" });
  }

  return { element: h("div", {}, trouble, list.element, viewer), shown: refresh };
}

// What was changed in files that came from this host.
import { call } from "./api.js";
import { button, confirm } from "./controls.js";
import { patch } from "./diff.js";
import { h, replace } from "./dom.js";
import { announce, emptyState, failure, skeleton } from "./messages.js";
import { facts } from "./overview.js";
import { count, prose } from "./text.js";

/** Files that an answer passes over. */
const passedOver = (answer) => (answer.passed_over || []).map((it) => h("li", {}, `${it.path} is passed over: ${it.reason}`));

/** What a session changed in copied files, and a button that applies it. */
export function workspaceChanges(session) {
  const place = h("div", {}, skeleton());
  const apply = async () => {
    if (!await confirm("Apply the changes?", "The files are written to the directories of this host that they were copied from.", "Apply")) return;
    const answer = await call("workspace apply", {}, session);
    const { files, protected: unwritten } = answer;
    replace(place, h("p", { class: "done" }, `${count(files.length, "file was", "files were")} written.`),
      h("ul", {}, files.map((it) => h("li", {}, `${it.change} ${it.path}`)), (unwritten || []).map((it) => h("li", {}, `not written: ${it} has a protected name`)), passedOver(answer)));
    announce("The changes were applied.");
  };
  async function shown() {
    try {
      const answer = await call("workspace diff", {}, session);
      const files = answer.files || [];
      const notes = [...files.filter((it) => !it.diff).map((it) => h("li", {}, `${it.change} ${it.path}${it.note ? `: ${it.note}` : ""}`)), ...passedOver(answer)];
      const text = files.map((it) => it.diff || "").join("");
      replace(place,
        files.length === 0 && emptyState("check", "No changes", `The files that session ${session} works on are as they were copied from this host.`),
        files.length > 0 && h("div", { class: "toolbar" }, h("span", {}, count(files.length, "changed file")), button("Apply to this host", apply, { class: "primary" })),
        text && patch(text, `Changes of session ${session}`),
        notes.length > 0 && h("ul", { class: "notes" }, notes));
    } catch (error) {
      const hasNone = error.code === "not_found";
      replace(place, hasNone ? h("p", { class: "empty" }, `Session ${session} works on no copies of files of this host.`) : failure(error));
    }
  }
  const refresh = button("Refresh", shown);
  return { element: h("section", { class: "card", "aria-labelledby": "changes-title" }, h("div", { class: "toolbar" }, h("h2", { id: "changes-title" }, "Copied files"), refresh), place), shown };
}

/** Of a machine: the directories that it shares with this host, and what its session changed in copies. */
export function changesPanel(machine) {
  const { status, row } = machine;
  const mounts = status.metadata?.mounts || [];
  const copies = workspaceChanges(row.session);
  const shared = h("section", { class: "card", "aria-labelledby": "mounts-title" }, h("h2", { id: "mounts-title" }, "Shared directories"),
    mounts.length === 0
      ? h("p", { class: "empty" }, "It shares no directory with this host. What it changes stays inside, and is saved on this host when it is removed.")
      : [h("p", { class: "help" }, "Changes there are made on this host at once."), facts(mounts.map((it) => [it.container, [h("code", {}, it.host), it.mode === "ro" ? " (read-only)" : ""]]))],
    status.review?.length > 0 && h("ul", { class: "notes" }, status.review.map((it) => h("li", {}, prose(it.message || `${it.path} was changed`)))));
  return { element: h("div", {}, shared, copies.element), shown: copies.shown };
}

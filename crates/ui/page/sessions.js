// Sessions: their machines, what each did, and what it changed in copied files.
import { machines } from "./api.js";
import { workspaceChanges } from "./changes.js";
import { tabs } from "./controls.js";
import { h } from "./dom.js";
import { image } from "./machines.js";
import { back, emptyState } from "./messages.js";
import { listing } from "./table.js";
import { machineState, when } from "./text.js";
import { newestActs, timelinePanel } from "./timeline.js";

export async function sessionsPage(place) {
  const columns = [
    { title: "Session", kind: "lead", sort: (it) => it.name, cell: (it) => h("a", { href: `#/session/${it.name}`, "data-key": `open ${it.name}` }, it.name) },
    { title: "Machines", kind: "num", sort: (it) => it.machines, cell: (it) => String(it.machines) },
    { title: "Last operation", sort: (it) => it.last?.operation, cell: (it) => it.last?.operation.replaceAll("_", " ") || "" },
    { title: "By", kind: "low", sort: (it) => it.last?.by, cell: (it) => it.last?.by || "" },
    { title: "When", sort: (it) => it.last?.time || "", cell: (it) => when(it.last?.time) },
  ];
  const list = listing({
    caption: "Sessions with machines or recent operations", columns, text: (it) => it.name,
    empty: () => emptyState("box", "No sessions yet", "A session is one agent or program, or you at a terminal. It is here as soon as it does something."),
  });
  const more = h("p", { class: "help" });
  place.append(h("div", { class: "head" }, h("div", {}, h("h1", {}, "Sessions"), h("p", { class: "subtitle" }, "Each agent, program or terminal that uses Coracle."))), list.element, more);
  try {
    const [{ acts, older, newest }, { containers }] = await Promise.all([newestActs({}), machines()]);
    const names = [...new Set([...containers.map((it) => it.session), ...acts.map((it) => it.session)].filter(Boolean))];
    list.show(names.map((name) => ({ name, machines: containers.filter((it) => it.session === name).length, last: acts.find((it) => it.session === name) })));
    more.textContent = older > 0 ? `Sessions without machines are here if they did one of the newest ${newest} operations.` : "";
  } catch (error) {
    list.fail(error);
  }
}

function machinesPanel(name) {
  const columns = [
    { title: "Name", kind: "lead", sort: (it) => it.name, cell: (it) => h("span", { class: "stack" }, h("a", { href: `#/machine/${it.name}` }, it.name), h("span", { class: "minor" }, image(it))) },
    { title: "State", sort: (it) => it.status, cell: machineState },
    { title: "Jobs", kind: "num", sort: (it) => it.jobs_running, cell: (it) => String(it.jobs_running) },
    { title: "Created", sort: (it) => it.created, cell: (it) => when(it.created) },
  ];
  const list = listing({ caption: `Machines of session ${name}`, columns, empty: "The session has no machine now." });
  const shown = () => machines().then(({ containers }) => list.show(containers.filter((it) => it.session === name)), list.fail);
  return { element: list.element, shown };
}

export function sessionPage(place, name, tab = "timeline") {
  const panels = [["timeline", "Timeline", () => timelinePanel({ session_name: name })], ["machines", "Machines", () => machinesPanel(name)], ["changes", "Changes", () => workspaceChanges(name)]];
  const all = tabs(`Parts of session ${name}`, panels.map(([id, title, panel]) => ({ id, title, panel })), tab,
    (id) => history.replaceState(null, "", id === "timeline" ? `#/session/${name}` : `#/session/${name}/${id}`));
  place.append(back("#/sessions", "Sessions"),
    h("div", { class: "head" }, h("h1", {}, name)), all.element);
  all.show();
  return all.end;
}

// One machine: what it is and how it stands, and tabs for all else.
import { call, machines } from "./api.js";
import { changesPanel } from "./changes.js";
import { checkpointsPanel } from "./checkpoints.js";
import { button, menu, tabs } from "./controls.js";
import { every, h, replace } from "./dom.js";
import { filesPanel } from "./files.js";
import { jobsPanel } from "./jobs.js";
import { backToMachines, destroy, image, power } from "./machines.js";
import { announce, back, failure, notFound, skeleton } from "./messages.js";
import { overviewPanel } from "./overview.js";
import { reportPanel } from "./report.js";
import { terminalPanel } from "./terminal.js";
import { machineState, when } from "./text.js";
import { timelinePanel } from "./timeline.js";

const EVERY = 3000;

const PANELS = [
  ["overview", "Overview", overviewPanel], ["jobs", "Jobs", jobsPanel], ["terminal", "Terminal", terminalPanel], ["files", "Files", filesPanel],
  ["report", "Report", reportPanel], ["changes", "Changes", changesPanel], ["undo", "Undo", checkpointsPanel], ["timeline", "Timeline", (machine) => timelinePanel({ container: machine.name })],
];

export async function machinePage(place, name, tab = "overview") {
  const [side, line, trouble] = [h("div", { class: "actions" }), h("p", { class: "subtitle" }), h("div", {})];
  const body = h("div", {}, h("div", { class: "card" }, skeleton(5)));
  place.append(
    back("#/", "Machines"),
    h("div", { class: "head" }, h("h1", {}, name), side), line, trouble, body);
  const gone = () => notFound(place, "Machine not found", `There is no machine named \`${name}\`. It may have been removed.`, "#/", "Show all machines");

  const machine = { name, row: null, status: null };
  let isOver = false;
  let all = null;

  async function look(isChanged = false) {
    const answer = await machines(isChanged);
    if (isOver) return;
    const before = machine.row?.running;
    machine.row = answer.containers.find((it) => it.name === name);
    if (!machine.row) return end(gone);
    if (!machine.status || before !== machine.row.running) machine.status = await call("status", { container: name });
    replace(trouble);
    draw();
  }

  function draw() {
    const { row } = machine;
    const parts = [machineState(row), image(row), row.engine, h("a", { class: "plain", href: `#/session/${row.session}` }, `session ${row.session}`), h("span", {}, "created ", when(row.created))];
    replace(line, parts.map((it) => h("span", { class: "part" }, it)));
    replace(side,
      button(row.running ? "Stop" : "Start", async () => { await power(row); if (!isOver) await look(true); }),
      menu("More actions", () => [
        { text: "Copy the command of a shell", work: () => copy(`coracle shell ${name}`) },
        { text: "Copy the command of ssh", work: () => copy(`ssh ${name}.coracle`) },
        { text: "Remove…", danger: true, work: async () => { if (await destroy(name) && !isOver) backToMachines(); } },
      ]));
    if (!all) {
      all = tabs(`Parts of ${name}`, PANELS.map(([id, title, panel]) => ({ id, title, panel: () => panel(machine) })), tab,
        (id) => history.replaceState(null, "", id === "overview" ? `#/machine/${name}` : `#/machine/${name}/${id}`));
      body.replaceChildren(all.element);
      all.show();
      place.addEventListener("opentab", ({ detail }) => all.open(detail));
    }
    all.update();
  }

  const copy = async (text) => {
    await navigator.clipboard.writeText(text);
    announce(`Copied: ${text}`);
  };

  function end(then) {
    isOver = true;
    stop();
    all?.end();
    then?.();
  }
  const again = () => look().catch((error) => replace(trouble, failure(error)));
  const stop = every(EVERY, () => isOver ? null : again());
  try {
    await look();
  } catch (error) {
    if (error.code === "not_found") end(gone);
    else {
      body.replaceChildren();
      replace(trouble, failure(error));
    }
  }
  return () => end();
}

/** Opens a tab of the page that an element stands in. */
export const openTab = (element, id) => element.dispatchEvent(new CustomEvent("opentab", { bubbles: true, detail: id }));

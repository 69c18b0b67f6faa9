// All machines.
import { call, machines } from "./api.js";
import { button, confirm, menu, shortened } from "./controls.js";
import { openCreate } from "./create.js";
import { every, h, icon, replace } from "./dom.js";
import { announce, emptyState, moveTo } from "./messages.js";
import { listing } from "./table.js";
import { bytes, count, machineState, percent, portAddress, when } from "./text.js";

const EVERY = 2000;

/** Asks, and removes a machine. */
export async function destroy(name) {
  const text = "Its commands end. Work that only this machine has is saved on this host first.";
  if (!await confirm(`Remove ${name}?`, text, "Remove")) return false;
  return destroyNow(name);
}

async function destroyNow(name) {
  announce(`Removing ${name}…`);
  const answer = await call("destroy", { container: name });
  announce(`${name} is removed.${answer.saved?.length ? " Its work was saved: coracle saved list shows it." : ""}`);
  return true;
}

/** Starts or stops a machine. */
export async function power(row) {
  announce(`${row.running ? "Stopping" : "Starting"} ${row.name}…`);
  await call(row.running ? "stop" : "start", { container: row.name });
  announce(`${row.name} is ${row.running ? "stopped" : "running"}.`);
}

export const ports = (row) => (row.port_map || []).filter((it) => it.host).map((it) => it.protocol === "udp"
  ? h("span", { class: "port" }, `${it.host} → ${it.container}/udp`)
  : h("a", { class: "port", href: portAddress(it), target: "_blank", rel: "noopener noreferrer", title: `${it.address}:${it.host}` }, `${it.host} → ${it.container}`));

/** What a machine is made from, with the whole name of its image at a press. */
export const image = (row) => shortened(row.image_label, row.image, "image name");

function memory(row) {
  if (!row.running) return "";
  const used = h("span", {}, bytes(row.memory_bytes));
  if (!row.memory_limit) return used;
  const share = Math.min(100, (row.memory_bytes / row.memory_limit) * 100);
  const text = `${bytes(row.memory_bytes)} of ${bytes(row.memory_limit)}`;
  return h("span", { class: "gauge", title: text }, used,
    h("span", { class: "track", role: "img", "aria-label": text }, h("span", { class: share > 85 ? "fill full" : "fill", style: `width: ${share.toFixed(1)}%` })));
}

/** Containers that another state directory has, or that only carry a label of ours. */
const foreign = (names) => names.length > 0 && h("details", { class: "help" },
  h("summary", {}, `${count(names.length, "container")} of other users or state directories`),
  h("p", {}, "Coracle created them with another state directory, such as that of another user or of a test, or they only carry its label. The page does not show or change them."),
  h("p", {}, names.join(", ")));

/** Containers that sessions, sandboxes and builds of images have. */
const helpers = (rows) => rows.length > 0 && h("details", { class: "help" },
  h("summary", {}, `${count(rows.length, "container")} of sessions, sandboxes and image builds`),
  h("ul", {}, rows.map((it) => h("li", {}, `${it.name}: ${it.kind}, ${it.status}, ${it.image_label}`))));

/** Said above the list where the engine is busy. */
const lastSeen = (time) => time && h("p", { class: "help", role: "status" }, "The engine is busy. This was last seen ", when(time), ".");

export async function machinesPage(place) {
  const selected = new Set();
  let rows = [];
  const others = h("div", {});
  const bulk = h("div", { class: "bulk", role: "group", "aria-label": "Selected machines", hidden: true });

  const refresh = async (isChanged = false) => {
    try {
      const answer = await machines(isChanged);
      rows = answer.containers;
      replace(others, lastSeen(answer.as_of), helpers(answer.others || []), foreign(answer.unverified || []));
      for (const name of selected) if (!rows.some((it) => it.name === name)) selected.delete(name);
      list.show(rows);
      drawBulk();
    } catch (error) {
      list.fail(error);
    }
  };
  const changing = async (work) => { try { await work(); } finally { await refresh(true); } };

  const pick = (row) => h("input", {
    type: "checkbox", "aria-label": `Select ${row.name}`, "data-key": `select ${row.name}`, checked: selected.has(row.name),
    onchange: ({ target }) => { target.checked ? selected.add(row.name) : selected.delete(row.name); list.redraw(); drawBulk(); },
  });
  const actions = (row) => menu(`Actions of ${row.name}`, () => [
    { text: "Open", href: `#/machine/${row.name}` },
    row.running && { text: "Terminal", href: `#/machine/${row.name}/terminal` },
    { text: row.running ? "Stop" : "Start", work: () => changing(() => power(row)) },
    { text: "Remove…", danger: true, work: () => changing(() => destroy(row.name)) },
  ], { key: `menu ${row.name}` });
  const columns = [
    {
      title: "Name", kind: "lead", sort: (it) => it.name,
      cell: (it) => [pick(it), h("span", { class: "stack" },
        h("a", { href: `#/machine/${it.name}`, "data-key": `open ${it.name}` }, it.name), h("span", { class: "minor" }, image(it)))],
    },
    { title: "State", sort: (it) => it.status, cell: machineState },
    { title: "CPU", kind: "num", sort: (it) => it.cpu_percent ?? -1, cell: (it) => it.running ? percent(it.cpu_percent) : "" },
    { title: "Memory", kind: "num", sort: (it) => it.memory_bytes ?? -1, cell: memory },
    { title: "Jobs", kind: "num", sort: (it) => it.jobs_running, cell: (it) => it.jobs_running ? h("a", { href: `#/machine/${it.name}/jobs` }, String(it.jobs_running)) : h("span", { class: "none" }, "0") },
    { title: "Ports", kind: "low", cell: (it) => h("span", { class: "ports" }, ports(it)) },
    { title: "Session", kind: "low", sort: (it) => it.session, cell: (it) => h("a", { class: "plain", href: `#/session/${it.session}` }, it.session) },
    { title: "Engine", kind: "low", sort: (it) => it.engine, cell: (it) => it.engine },
    { title: "Created", kind: "low", sort: (it) => it.created, cell: (it) => when(it.created) },
    { title: "Actions", kind: "last", cell: actions },
  ];
  const create = () => openCreate(() => refresh(true));
  const list = listing({
    caption: "Machines of all sessions", columns, sort: { column: 0, down: false },
    text: (it) => [it.name, it.image, it.purpose, it.engine, it.session, it.status].filter(Boolean).join(" "),
    empty: () => emptyState("box", "No machines yet", "A machine is a Linux container for you or an agent. Create one here, or with `coracle create` in a terminal.",
      h("button", { type: "button", class: "primary", "data-key": "create first", onclick: create }, "New machine")),
    tools: [bulk],
  });

  function drawBulk() {
    const names = [...selected];
    bulk.hidden = names.length === 0;
    const several = rows.filter((it) => selected.has(it.name));
    const running = several.filter((it) => it.running);
    const stopAll = () => changing(() => each(running, power));
    const removeAll = async () => {
      if (!await confirm(`Remove ${count(names.length, "machine")}?`, `${names.join(", ")}. Their commands end. Work that only they have is saved on this host first.`, "Remove")) return;
      await changing(() => each(names, destroyNow));
      selected.clear();
      await refresh();
    };
    bulk.replaceChildren(h("span", {}, `${names.length} selected`),
      running.length > 0 ? button("Stop", stopAll, { "data-key": "stop selected" }) : "",
      button("Remove…", removeAll, { class: "danger", "data-key": "remove selected" }));
  }

  place.append(
    h("div", { class: "head" }, h("h1", {}, "Machines"),
      h("div", { class: "actions" }, h("button", { type: "button", class: "primary", "data-key": "create", "data-shortcut": "n", onclick: create }, icon("plus"), "New machine"))),
    list.element, others);
  await refresh();
  return every(EVERY, () => refresh());
}

/** Does something to several things, one after the other. All are tried, and the first failure is reported. */
async function each(things, work) {
  const failures = [];
  for (const it of things) await work(it).catch((error) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

/** After a machine was removed on its own page. */
export const backToMachines = () => moveTo("#/");

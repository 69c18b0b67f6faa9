// One machine: facts, what it uses over time, provisioning report, jobs, terminal, timeline.
import { call, machines, usage } from "./api.js";
import { announce, button, h, percent, replace, state, table, when } from "./dom.js";
import { jobsSection } from "./jobs.js";
import { destroy, memory } from "./machines.js";
import { plot } from "./plot.js";
import { terminalSection } from "./terminal.js";
import { timeline } from "./sessions.js";

const EVERY = 3000;

function facts(status, row) {
  const facts = [
    ["State", state(status.status, status.running)],
    ["Image", status.image],
    ["Session", h("a", { href: `#/session/${status.session}` }, status.session)],
    ["Engine", row.engine],
    ["Network", status.network],
    ["Working directory", h("code", {}, status.workdir)],
    ["CPU", percent(row.cpu_percent)],
    ["Memory", memory(row)],
    ["Ports", row.ports || "none"],
    ["Created", when(row.created)],
  ];
  return h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value ?? ""))));
}

function report(status) {
  const rows = (status.metadata?.provisioning_report || []).map((it) => [
    it.name.replaceAll("_", " "),
    state(it.status, it.status === "success"),
    h("div", {}, [it.detail, it.error, ...(it.items || []).map((one) => [one.name, one.status, one.detail, one.error].filter(Boolean).join(": "))].filter(Boolean).map((text) => h("div", {}, text))),
  ]);
  return table("What was done when the machine was created", ["Step", "Status", "Details"], rows, "There is no report of it.");
}

function section(title, id, ...content) {
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...content);
}

/** Shows this page anew. The document stays, with what it warns of. */
function showAgain(text) {
  window.dispatchEvent(new HashChangeEvent("hashchange"));
  announce(text);
}

async function plots(name) {
  const { samples } = await usage(name);
  return h("div", { class: "plots" }, plot("CPU", samples, "cpu_percent", percent), plot("Memory", samples, "memory_bytes"));
}

export async function machinePage(place, name) {
  const first = await call("status", { container: name });
  const [about, resources, history] = [h("div", {}), h("div", {}), h("div", { class: "wide" })];
  const jobs = jobsSection(name, first.running);
  const terminal = terminalSection(name, first.running);
  let ended = false;
  // A page that was opened meanwhile stays as it is.
  const done = (text) => ended ? announce(text) : showAgain(text);
  const power = first.running
    ? button("Stop", async () => { await call("stop", { container: name }); done(`${name} is stopped.`); })
    : button("Start", async () => { await call("start", { container: name }); done(`${name} runs.`); });
  place.append(
    h("h1", {}, name),
    h("div", { class: "actions" }, power,
      button("Remove", async () => { if (await destroy(name) && !ended) location.hash = "#/"; }, { class: "danger" })),
    h("div", { class: "columns" }, section("Facts", "facts-title", about), section("Resources", "resources-title", resources)),
    section("Jobs", "jobs-title", jobs.element),
    section("Terminal", "terminal-title", terminal.element),
    section("Provisioning report", "report-title", h("div", { class: "wide" }, report(first))),
    section("Timeline", "timeline-title", history));

  async function refresh() {
    const answer = await machines();
    const row = answer.containers?.find((it) => it.name === name);
    if (!row) {
      replace(about, h("p", { class: "empty" }, "This machine is gone."));
      return;
    }
    const status = { ...first, status: row.status, running: row.running };
    replace(about, facts(status, row));
    replace(resources, await plots(name));
    await jobs.refresh();
  }
  const again = () => refresh().catch((error) => announce(error.message));
  await again();
  replace(history, await timeline({ container: name }));
  const timer = setInterval(() => { if (!ended && !document.hidden) again(); }, EVERY);
  return () => { ended = true; clearInterval(timer); jobs.end(); terminal.end(); };
}

// What a machine uses, how it is reached, and the facts about it.
import { usage } from "./api.js";
import { copyLine } from "./controls.js";
import { h, replace } from "./dom.js";
import { ports } from "./machines.js";
import { failure, skeleton } from "./messages.js";
import { plot } from "./plot.js";
import { count, moment, percent, prose, when } from "./text.js";

export const facts = (rows) => h("dl", { class: "facts" }, rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
  .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

export const section = (title, id, ...content) => h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), content);

function details({ status, row }) {
  const limits = status.limits || {};
  return facts([
    ["Image", copyLine(status.image, "Copy the image name")],
    ["Container", status.id && copyLine(status.id, "Copy the container id", status.id.slice(0, 12))],
    ["Working directory", h("code", {}, status.workdir)],
    ["Runs as", status.exec_user === "0:0" ? "root (0:0)" : status.exec_user],
    ["Network", status.network],
    ["CPU limit", limits.cpus && count(limits.cpus, "core")],
    ["Process limit", limits.pids?.toLocaleString("en")],
    ["Started", status.running && status.started_at ? when(status.started_at) : ""],
    ["Removed when unused", status.expires_at ? moment(status.expires_at) : "never"],
    ["Services", row.compose_services?.join(", ")],
  ]);
}

function connect({ name, row }) {
  if (!row.running) return h("p", { class: "empty" }, "The machine is not running.");
  const open = ports(row);
  return facts([
    ["Ports", open.length > 0 ? h("span", { class: "ports" }, open) : h("span", { class: "minor" }, "none published")],
    ["Shell", copyLine(`coracle shell ${name}`, "Copy the command of a shell")],
    ["Editor", copyLine(`coracle open ${name}`, "Copy the command of an editor")],
    ["ssh", copyLine(`ssh ${name}.coracle`, "Copy the command of ssh")],
    ["Another port", copyLine(`coracle forward ${name} 8000`, "Copy the command that forwards a port")],
  ]);
}

function troubles({ status }) {
  const steps = (status.metadata?.provisioning_report || []).filter((it) => !["success", "skipped"].includes(it.status));
  const notes = [
    !status.running && status.oom_killed && "It was ended because it ran out of memory.",
    status.env_missing?.length > 0 && `Variables were lost when it was started again: ${status.env_missing.join(", ")}.`,
    status.review?.length > 0 && `Protected files of this host were changed: ${status.review.map((it) => it.path || it.message).filter(Boolean).join(", ")}. Look at them before you use git there.`,
  ].filter(Boolean);
  const failed = steps.length > 0 && h("p", {}, `${count(steps.length, "step")} of its setup did not succeed. `,
    h("button", { type: "button", class: "linklike", onclick: ({ target }) => target.dispatchEvent(new CustomEvent("opentab", { bubbles: true, detail: "report" })) }, "Show the report"));
  return (failed || notes.length > 0) && h("div", { class: "notice warn" }, failed, notes.map((it) => h("p", {}, prose(it))));
}

export function overviewPanel(machine) {
  const [notice, about, reach, resources] = [h("div", {}), h("div", {}), h("div", {}), h("div", {}, skeleton(6))];
  const element = h("div", {}, notice,
    h("div", { class: "columns" },
      section("Resources", "resources-title", resources),
      h("div", {}, section("Connect", "connect-title", reach), section("Details", "facts-title", about))));

  async function update() {
    replace(notice, troubles(machine));
    replace(reach, connect(machine));
    replace(about, details(machine));
    try {
      const { samples } = await usage(machine.name);
      replace(resources,
        plot("CPU", samples, "cpu_percent", { text: percent, base: 10, limit: machine.row.running && machine.status.limits?.cpus * 100 || null }),
        plot("Memory", samples, "memory_bytes", { limit: machine.row.memory_limit }),
        h("p", { class: "help" }, "100 % of CPU is one core."));
    } catch (error) {
      replace(resources, failure(error));
    }
  }
  return { element, update, shown: update };
}

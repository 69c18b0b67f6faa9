// The jobs of a machine: start, watch with live output, cancel.
import { call } from "./api.js";
import { announce, button, bytes, failure, h, replace, state, table, when } from "./dom.js";

const EVERY = 1000;

export function jobsSection(name, running) {
  const list = h("div", { class: "wide" });
  const output = h("div", {});
  let watched = null;
  let timer = null;

  async function refresh() {
    if (!running) return replace(list, h("p", { class: "empty" }, "The machine does not run."));
    const { jobs } = await call("jobs", { container: name });
    jobs.sort((a, b) => b.running - a.running || (b.started_at || "").localeCompare(a.started_at || ""));
    const rows = jobs.map((it) => [
      h("code", {}, it.job_id), h("code", {}, it.command), state(it.state, it.running),
      bytes(it.total_bytes), it.started_at ? when(it.started_at) : "",
      h("span", { class: "buttons" },
        button("Watch", () => watch(it.job_id), { "aria-label": `Watch job ${it.job_id}`, "data-key": `watch ${it.job_id}` }),
        it.running && button("Cancel", () => cancel(it.job_id), { "aria-label": `Cancel job ${it.job_id}`, "data-key": `cancel ${it.job_id}`, class: "danger" })),
    ]);
    replace(list, table("Jobs of this machine", ["Job", "Command", "State", "Output", "Started", "Action"], rows, "No job has run."));
  }

  async function cancel(job) {
    await call("exec_cancel", { container: name, job_id: job });
    announce(`Job ${job} is ended.`);
    await refresh();
  }

  async function watch(job) {
    unwatch();
    watched = job;
    const [text, line] = [h("pre", { class: "output", tabindex: "0", "aria-label": `Output of job ${job}` }), h("p", { class: "help" })];
    output.replaceChildren(h("h3", {}, `Output of job ${job}`), text, line, button("Close", () => { unwatch(); output.replaceChildren(); }));
    const look = async () => {
      const answer = await call("exec_poll", { container: name, job_id: job, lines: 200 });
      if (watched !== job) return;
      const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
      if (text.textContent !== answer.output) text.textContent = answer.output;
      if (atEnd) text.scrollTop = text.scrollHeight;
      const end = answer.exit_code === null ? answer.state : `${answer.state}, exit code ${answer.exit_code}`;
      line.textContent = `${answer.running ? "running" : end}; ${bytes(answer.total_bytes)} of output, the last 200 lines are shown`;
      if (!answer.running) {
        announce(`Job ${job}: ${end}.`);
        unwatch();
        await refresh();
      }
    };
    timer = setInterval(() => look().catch((error) => { unwatch(); output.append(failure(error)); }), EVERY);
    await look();
  }

  function unwatch() {
    clearInterval(timer);
    watched = null;
  }

  const command = h("input", { id: "job-command", name: "command", autocomplete: "off", spellcheck: "false", required: true });
  const trouble = h("div", {});
  const form = h("form", {
    class: "line",
    onsubmit: async (event) => {
      event.preventDefault();
      trouble.replaceChildren();
      try {
        const answer = await call("exec_background", { container: name, command: command.value });
        command.value = "";
        announce(`Job ${answer.job_id} runs.`);
        await refresh();
        await watch(answer.job_id);
      } catch (error) {
        trouble.replaceChildren(failure(error));
      }
    },
  }, h("label", { for: "job-command" }, "Command of a new job"), command, h("button", { type: "submit" }, "Start job"));
  return { element: h("div", {}, running && form, trouble, list, output), refresh, end: unwatch };
}

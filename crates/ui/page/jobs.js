// The jobs of a machine: start, watch with live output, cancel.
import { call } from "./api.js";
import { button, menu } from "./controls.js";
import { every, h, icon, replace } from "./dom.js";
import { announce, failure } from "./messages.js";
import { listing } from "./table.js";
import { bytes, capital, plain, state, when } from "./text.js";

const EVERY = 1000;

// Lines of output that are shown.
const LINES = 1000;

function jobState(job) {
  if (job.running) return state("Running", "good");
  if (job.state === "exited") return state(`Exit ${job.exit_code}`, job.exit_code === 0 ? "" : "bad");
  return state(capital(job.state.replaceAll("_", " ")), job.state === "cancelled" ? "" : "bad");
}

const ended = (answer) => answer.exit_code === null || answer.exit_code === undefined ? answer.state : `${answer.state}, exit code ${answer.exit_code}`;

export function jobsPanel(machine) {
  const { name } = machine;
  const output = h("div", {});
  let unwatch = () => {};

  const columns = [
    { title: "Command", kind: "lead", sort: (it) => it.command, cell: (it) => h("span", { class: "stack" }, button(h("code", { class: "command" }, it.command), () => watch(it), { class: "linklike", "aria-label": `Output of job ${it.job_id}: ${it.command}`, "data-key": `watch ${it.job_id}` }), h("span", { class: "minor" }, it.job_id)) },
    { title: "State", sort: (it) => `${it.running ? 0 : 1}${it.state}`, cell: jobState },
    { title: "Output", kind: "num", sort: (it) => it.total_bytes, cell: (it) => bytes(it.total_bytes) },
    { title: "Started", sort: (it) => it.started_at || "", cell: (it) => when(it.started_at) },
    { title: "Actions", kind: "last", cell: (it) => menu(`Actions of job ${it.job_id}`, () => [{ text: "Show output", work: () => watch(it) }, it.running && { text: "Cancel", danger: true, work: () => cancel(it.job_id) }], { key: `job ${it.job_id}` }) },
  ];
  const list = listing({ caption: "Jobs of this machine", columns, text: (it) => `${it.command} ${it.job_id} ${it.state}`, empty: "No job has run. Start one above: it goes on when you close the page." });

  async function refresh() {
    if (!machine.row.running) return;
    try {
      const { jobs } = await call("jobs", { container: name });
      jobs.sort((a, b) => b.running - a.running || (b.started_at || "").localeCompare(a.started_at || ""));
      list.show(jobs);
    } catch (error) {
      list.fail(error);
    }
  }

  async function cancel(job) {
    await call("exec_cancel", { container: name, job_id: job });
    announce(`Job ${job} is cancelled.`);
    await refresh();
  }

  async function watch({ job_id: job, command }) {
    unwatch();
    let isOver = false;
    let all = "";
    const text = h("pre", { class: "output", tabindex: "0", "aria-label": `Output of job ${job}` });
    const line = h("p", { class: "help" });
    const search = h("input", { type: "search", class: "search", placeholder: "Show lines with…", "aria-label": "Show only lines with", oninput: () => draw() });
    const close = () => { unwatch(); output.replaceChildren(); };
    const trouble = h("div", {});
    output.replaceChildren(h("section", { class: "card viewer", "aria-label": `Output of job ${job}` },
      h("div", { class: "toolbar" }, h("h3", {}, h("code", {}, command)), search, button("Download", () => download(job)), h("button", { type: "button", class: "quiet", "aria-label": "Close the output", onclick: close }, icon("close"))),
      text, line, trouble));
    const draw = () => {
      const words = search.value.toLowerCase();
      const shown = words ? all.split("\n").filter((it) => it.toLowerCase().includes(words)).join("\n") : all;
      const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
      if (text.textContent !== shown) text.textContent = shown;
      if (atEnd) text.scrollTop = text.scrollHeight;
    };
    const look = async () => {
      const answer = await call("exec_poll", { container: name, job_id: job, lines: LINES });
      if (isOver) return;
      all = plain(answer.output);
      draw();
      line.textContent = `${answer.running ? "running" : ended(answer)}; ${bytes(answer.total_bytes)} of output${all.split("\n").length > LINES ? `, the last ${LINES} lines are shown` : ""}`;
      if (!answer.running) {
        if (!isFirst) announce(`Job ${job}: ${ended(answer)}.`);
        unwatch();
        await refresh();
      }
      isFirst = false;
    };
    let isFirst = true;
    const failed = (error) => { unwatch(); trouble.replaceChildren(failure(error)); };
    const stop = every(EVERY, () => look().catch(failed));
    unwatch = () => { isOver = true; stop(); };
    await look();
    output.scrollIntoView({ block: "nearest" });
  }

  async function download(job) {
    const { output: text } = await call("exec_poll", { container: name, job_id: job, lines: 100000 });
    const address = URL.createObjectURL(new Blob([text]));
    h("a", { href: address, download: `${name}-${job}.log` }).click();
    URL.revokeObjectURL(address);
  }

  const command = h("input", { id: "job-command", name: "command", autocomplete: "off", spellcheck: "false", required: true, placeholder: "npm run dev" });
  const trouble = h("div", {});
  const form = h("form", {
    class: "line",
    onsubmit: async (event) => {
      event.preventDefault();
      trouble.replaceChildren();
      try {
        const started = command.value;
        const answer = await call("exec_background", { container: name, command: started });
        command.value = "";
        announce(`Job ${answer.job_id} runs.`);
        await refresh();
        await watch({ job_id: answer.job_id, command: started });
      } catch (error) {
        trouble.replaceChildren(failure(error));
      }
    },
  }, h("label", { for: "job-command" }, "New job"), command, h("button", { type: "submit", class: "primary" }, "Start"));
  const content = h("div", {}, form, trouble, list.element, output);
  const stopped = h("div", { class: "card" }, h("p", { class: "empty" }, "Start the machine to see and start jobs."));
  const update = () => {
    content.hidden = !machine.row.running;
    stopped.hidden = machine.row.running;
    return content.offsetParent ? refresh() : null;
  };
  content.hidden = !machine.row.running;
  stopped.hidden = machine.row.running;
  return { element: h("div", {}, stopped, content), shown: refresh, update, end: () => unwatch() };
}

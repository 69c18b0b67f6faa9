// Workflows: an agent's task on a branch of its own. What each is about, how it stands, and what it used.
import { call, follow, tool } from "./api.js";
import { button, confirm, field, menu, openDialog } from "./controls.js";
import { every, h, icon } from "./dom.js";
import { announce, emptyState, failure, moveTo } from "./messages.js";
import { liveSteps } from "./steps.js";
import { listing } from "./table.js";
import { capital, prose, state, when } from "./text.js";

const EVERY = 5000;

const KINDS = { running: "busy", done: "good", failed: "bad", lost: "warn", cancelled: "" };

export const address = ({ id, profile }) => `#/workflow/${profile && profile !== "default" ? `${profile}/` : ""}${id}`;

/** What is given to operations that find a workflow by its profile. */
export const named = ({ id, profile }) => ({ workflow: id, ...(profile ? { profile } : {}) });

export const runState = (run) => run ? state(capital(run.state), KINDS[run.state]) : state("No run yet");

/** What it used: as the proxy counted it, or else as the agent's program reports it. */
export function used(run) {
  const metered = run?.metered?.requests > 0 ? run.metered : run?.usage;
  const tokens = (metered?.input_tokens || 0) + (metered?.output_tokens || 0);
  const dollars = run?.metered?.cost_usd ?? run?.usage?.cost_usd;
  return { tokens: tokens > 0 ? tokens : null, cost: typeof dollars === "number" ? `$${dollars.toFixed(2)}` : "" };
}

/** All of them, of sandboxes that run and that do not. */
export async function workflows() {
  const { worktrees, stopped } = await call("worktree_list");
  return [...worktrees, ...stopped.map((it) => ({ ...it, isStopped: true }))];
}

export async function cancelRun(id) {
  await tool("workflow_cancel", { workflow: id });
  announce(`The agent of ${id} is stopping.`);
}

export async function push(workflow) {
  const text = "Its branch goes to the repository that it came from, with your credential. Nothing else is pushed.";
  if (!await confirm(`Push ${workflow.id}?`, text, "Push")) return;
  announce("Pushing…");
  const answer = await call("worktree_push", named(workflow));
  announce(`${answer.ref} is at ${answer.new.slice(0, 12)}.${answer.uncommitted ? " What is not committed was not pushed." : ""}`);
}

export async function remove(workflow) {
  const text = "Its agent is stopped. What only the workflow has is saved on this host first.";
  if (!await confirm(`Remove ${workflow.id}?`, text, "Remove")) return false;
  announce(`Removing ${workflow.id}…`);
  const answer = await call("worktree_remove", named(workflow));
  announce(`${workflow.id} is removed.${answer.saved || answer.also_saved?.length ? " Its work was saved: coracle saved list shows it." : ""}`);
  return true;
}

export async function workflowsPage(place) {
  let isAnyRunning = false;
  const refresh = async () => {
    try {
      const rows = await workflows();
      isAnyRunning = rows.some((it) => it.run?.state === "running");
      list.show(rows);
    } catch (error) {
      list.fail(error);
    }
  };
  const changing = async (work) => { try { await work(); } finally { await refresh(); } };
  const task = (it) => it.run?.prompt?.split("\n")[0];
  const actions = (it) => menu(`Actions of ${it.id}`, () => [
    { text: "Open", href: address(it) },
    it.run?.state === "running" && { text: "Cancel the agent", work: () => changing(() => cancelRun(it.id)) },
    { text: "Push the branch…", work: () => changing(() => push(it)) },
    { text: "Remove…", danger: true, work: () => changing(() => remove(it)) },
  ], { key: `menu ${it.profile} ${it.id}` });
  const columns = [
    { title: "Workflow", kind: "lead", sort: (it) => it.id, cell: (it) => h("span", { class: "stack" }, h("a", { href: address(it), "data-key": `open ${it.profile} ${it.id}` }, it.id), h("span", { class: "minor one-line" }, task(it) || "")) },
    { title: "State", sort: (it) => it.run?.state || "", cell: (it) => runState(it.run) },
    { title: "Branch", kind: "low", sort: (it) => it.branch || it.run?.branch, cell: (it) => h("code", {}, it.branch || it.run?.branch || "") },
    { title: "Commits", kind: "num", sort: (it) => it.ahead ?? -1, cell: (it) => it.isStopped ? "" : String(it.ahead) },
    { title: "Tokens", kind: "num", sort: (it) => used(it.run).tokens || 0, cell: (it) => used(it.run).tokens?.toLocaleString("en") || "" },
    { title: "Cost", kind: "num low", sort: (it) => used(it.run).cost, cell: (it) => used(it.run).cost },
    { title: "Profile", kind: "low", sort: (it) => it.profile, cell: (it) => it.profile },
    { title: "Began", kind: "low", sort: (it) => it.run?.began || "", cell: (it) => when(it.run?.began) },
    { title: "Actions", kind: "last", cell: actions },
  ];
  const list = listing({
    caption: "Workflows with a worktree", columns, sort: { column: 0, down: false }, text: (it) => [it.id, it.branch, it.profile, it.run?.prompt, it.run?.state].filter(Boolean).join(" "),
    empty: () => emptyState("branch", "No workflows yet", "In a workflow an agent works on a repository alone: in its own container, on its own branch. Start one here, or with `coracle worktree create`.",
      h("button", { type: "button", class: "primary", onclick: openStart }, "New workflow")),
    tools: [button("Refresh", () => refresh())],
  });
  place.append(
    h("div", { class: "head" }, h("div", {}, h("h1", {}, "Workflows"), h("p", { class: "subtitle" }, "Agents that work alone, each on a branch of its own.")),
      h("div", { class: "actions" }, h("button", { type: "button", class: "primary", "data-key": "start", "data-shortcut": "n", onclick: openStart }, icon("plus"), "New workflow"))),
    list.element);
  await refresh();
  // To look into a sandbox is to use it: where no agent works, sandboxes are left alone, so that they can be stopped.
  return every(EVERY, () => isAnyRunning ? refresh() : null);
}

/** The dialog that starts an agent on a task. */
function openStart() {
  const trouble = h("div", {});
  const progress = h("div", { hidden: true });
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); start(); } },
    field("Task", "start-prompt", { tag: "textarea", rows: "4", required: true, autofocus: true, placeholder: "Fix the failing test in test_calc.py." }),
    h("div", { class: "fields" },
      field("Repository", "start-source", { placeholder: "." }, "A URL or a directory. Leave empty for the directory in which `coracle ui` was started."),
      field("Begin from", "start-base", { placeholder: "main" }, "A branch, tag or commit. Leave empty for the repository's HEAD.")),
    h("details", {}, h("summary", {}, "Profile and model"),
      h("div", { class: "fields" }, field("Profile", "start-profile", { placeholder: "default" }), field("Model", "start-model", {}, "Leave empty for `worker.model` of the configuration."))),
    h("p", { class: "help" }, prose("The agent works as long as `coracle ui` runs. You can close the page.")), trouble,
    h("div", { class: "actions end" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { type: "submit", class: "primary" }, "Start")));
  const dialog = openDialog("New workflow", [form, progress], { wide: true });

  async function start() {
    const data = new FormData(form);
    const args = {};
    for (const name of ["prompt", "source", "base", "profile", "model"]) if (data.get(name).trim()) args[name] = data.get(name).trim();
    const steps = liveSteps("Starting the sandbox. The first one takes minutes.");
    trouble.replaceChildren();
    form.hidden = true;
    progress.hidden = false;
    progress.replaceChildren(steps.element);
    try {
      const { value } = await follow("workflow_start", args, steps.event);
      steps.stop();
      dialog.close();
      moveTo(address({ id: value.workflow, profile: args.profile }));
      announce(`${value.workflow} has begun.`);
    } catch (error) {
      steps.stop();
      progress.hidden = true;
      form.hidden = false;
      trouble.replaceChildren(failure(error));
      if (!dialog.isConnected) announce(`The workflow did not start: ${error.message}`);
    }
  }
}

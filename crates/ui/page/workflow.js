// One workflow: its task and what the agent does, its changes, and what it used.
import { call, tool } from "./api.js";
import { button, confirm, copyLine, menu, run, tabs } from "./controls.js";
import { patch } from "./diff.js";
import { every, h, replace } from "./dom.js";
import { announce, back, emptyState, failure, moveTo, notFound, skeleton } from "./messages.js";
import { facts } from "./overview.js";
import { count, when } from "./text.js";
import { conversation } from "./transcript.js";
import { cancelRun, named, push, remove, runState, used, workflows } from "./workflows.js";

const EVERY = 3000;

// The server waits so long for an event.
const WAIT = 20;

function conversationPanel(workflow) {
  const place = h("div", {}, h("div", { class: "card" }, skeleton()));
  let isOver = false;
  let isReading = false;
  let shownRun = null;

  async function read() {
    if (isReading || isOver) return;
    isReading = true;
    const { run: last } = workflow;
    shownRun = last.run_id;
    const view = conversation(last.prompt);
    place.replaceChildren(view.element);
    let after = 0;
    try {
      for (;;) {
        const answer = await tool("workflow_events", { workflow: workflow.id, after, timeout: after === 0 ? 0 : WAIT });
        if (isOver) return;
        view.add(answer.events);
        view.working(answer.state === "running");
        const hasMore = answer.events.length > 0;
        after = answer.next;
        if (answer.state !== "running" && !hasMore) break;
        if (workflow.run.run_id !== shownRun) break;
      }
      if (workflow.run.message) view.trouble(workflow.run);
    } catch (error) {
      place.append(failure(error));
    } finally {
      isReading = false;
    }
  }
  const update = () => {
    if (!workflow.run) {
      const profile = workflow.profile && workflow.profile !== "default" ? ` --profile ${workflow.profile}` : "";
      return replace(place, h("div", { class: "card" }, emptyState("branch", "No agent has worked here yet", "Start one in a terminal:", copyLine(`coracle worker run --worktree ${workflow.id}${profile} --prompt '…'`))));
    }
    if (workflow.run.run_id !== shownRun) run(read);
  };
  return { element: place, update, shown: update, end: () => { isOver = true; } };
}

function changesPanel(workflow) {
  const place = h("div", {}, skeleton());
  const apply = async () => {
    const text = "They are written to the directory that the workflow began from: all of them, or none where something conflicts.";
    if (!await confirm("Apply the changes?", text, "Apply")) return;
    await call("worktree_apply", named(workflow));
    announce("The changes were applied.");
  };
  async function shown() {
    try {
      const { files, patch: text, omitted_files: omitted } = await call("worktree_diff", named(workflow));
      replace(place,
        files.length === 0 && emptyState("check", "No changes", "The worktree is as it was when the workflow began."),
        files.length > 0 && h("div", { class: "toolbar" }, h("span", {}, count(files.length, "changed file")),
          button("Refresh", shown), button("Push the branch…", () => push(workflow)), button("Apply to the checkout…", apply, { class: "primary", "data-key": "apply" })),
        text && patch(text, `Changes of workflow ${workflow.id}`),
        omitted.length > 0 && h("p", { class: "help" }, `Not shown, since the patch is long: ${omitted.join(", ")}`));
    } catch (error) {
      replace(place, failure(error));
    }
  }
  return { element: h("section", { class: "card", "aria-label": "Changes" }, place), shown };
}

function detailsPanel(workflow) {
  const place = h("div", {});
  const update = () => {
    const { run: last, row } = workflow;
    const { tokens, cost } = used(last);
    replace(place, facts([
      ["Branch", h("code", {}, row?.branch || last?.branch || "")],
      ["Begun from", row?.base && h("code", {}, row.base)],
      ["Commits", row?.ahead !== undefined && `${row.ahead} ahead, ${row.behind} behind, ${row.unpushed} not pushed`],
      ["Not committed", row?.dirty || row?.untracked > 0 ? `${row.dirty ? "changed files" : ""}${row.dirty && row.untracked ? ", " : ""}${row.untracked > 0 ? count(row.untracked, "new file") : ""}` : ""],
      ["Profile", workflow.profile || "default"],
      ["Model", last?.model],
      ["Tokens", tokens?.toLocaleString("en")],
      ["Cost", cost],
      ["Model requests", last?.metered?.requests ? String(last.metered.requests) : ""],
      ["Began", when(last?.began)],
      ["Ended", when(last?.ended)],
      ["Directory inside", row?.path && h("code", {}, row.path)],
      ["Ports", row?.ports && `${row.ports[0]} to ${row.ports[1]}`],
      ["Terminal", copyLine(`coracle worktree shell ${workflow.id}${workflow.profile && workflow.profile !== "default" ? ` --profile ${workflow.profile}` : ""}`, "Copy the command of a terminal")],
      ["A port of it", copyLine(`coracle forward --workflow ${workflow.id} 8000`, "Copy the command that forwards a port")],
    ]));
  };
  return { element: h("section", { class: "card", "aria-label": "Details" }, place), update, shown: update };
}

export async function workflowPage(place, profile, id, tab = "conversation") {
  const workflow = { id, profile, run: null, row: null };
  const [side, line, trouble] = [h("div", { class: "actions" }), h("p", { class: "subtitle" }), h("div", {})];
  const body = h("div", {}, h("div", { class: "card" }, skeleton(5)));
  place.append(back("#/workflows", "Workflows"),
    h("div", { class: "head" }, h("h1", {}, id), side), line, trouble, body);
  let isOver = false;
  let all = null;

  // A worktree that no agent has worked in has no run.
  const lastRun = () => tool("workflow_status", { workflow: id }).catch((error) => { if (error.code === "worktree_missing") return null; throw error; });

  async function look() {
    workflow.run = await lastRun();
    if (!isOver) draw();
  }

  function draw() {
    const { run: last, row } = workflow;
    const { tokens, cost } = used(last);
    const parts = [runState(last), row?.branch || last?.branch, last?.model, tokens && count(tokens, "token"), cost, last && h("span", {}, "began ", when(last.began)), last?.ended && h("span", {}, "ended ", when(last.ended))];
    replace(line, parts.filter(Boolean).map((it) => h("span", { class: "part" }, it)));
    replace(side,
      last?.state === "running" && button("Cancel", async () => { await cancelRun(id); await look(); }, { class: "danger" }),
      button("Push…", () => push(workflow), { "data-key": "push" }),
      menu("More actions", () => [
        { text: "Show the changes", work: () => all?.open("changes") },
        { text: "Remove…", danger: true, work: async () => { if (await remove(workflow) && !isOver) moveTo("#/workflows"); } },
      ]));
    const start = `#/workflow/${workflow.profile && workflow.profile !== "default" ? `${workflow.profile}/` : ""}${id}`;
    if (!all) {
      const panels = [["conversation", "Conversation", conversationPanel], ["changes", "Changes", changesPanel], ["details", "Details", detailsPanel]];
      all = tabs(`Parts of workflow ${id}`, panels.map(([key, title, panel]) => ({ id: key, title, panel: () => panel(workflow) })), tab,
        (chosen) => history.replaceState(null, "", chosen === "conversation" ? start : `${start}/${chosen}`));
      body.replaceChildren(all.element);
      all.show();
    } else all.update();
  }

  // To look into a sandbox is to use it: one in which no agent works is left alone, so that it can be stopped.
  const again = () => isOver || workflow.run?.state !== "running" ? null : look().then(() => replace(trouble), (error) => replace(trouble, failure(error)));
  const stop = every(EVERY, again);
  const end = () => { isOver = true; stop(); all?.end(); };
  try {
    workflow.run = await lastRun();
    workflow.profile ||= workflow.run?.profile;
    if (workflow.run && !isOver) draw();
    const rows = (await workflows()).filter((it) => it.id === id);
    workflow.row = rows.find((it) => it.profile === workflow.profile) || rows[0];
    workflow.profile ||= workflow.row?.profile;
    if (isOver) return end;
    if (workflow.row || workflow.run) draw();
    else {
      end();
      notFound(place, "Workflow not found", `There is no workflow named \`${id}\`. It may have been removed.`, "#/workflows", "Show all workflows");
    }
  } catch (error) {
    if (!all) body.replaceChildren();
    replace(trouble, failure(error));
  }
  return end;
}

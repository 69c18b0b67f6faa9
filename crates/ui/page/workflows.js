// Workflows: their branches, what their agents used, and their changes.
import { call } from "./api.js";
import { announce, button, confirm, h, replace, state, table, when } from "./dom.js";
import { patch } from "./diff.js";

const of = (id) => call("workflow_status", { workflow: id }).catch(() => null);

function used(status) {
  const usage = status?.usage || status?.metered;
  const tokens = (usage?.input_tokens || 0) + (usage?.output_tokens || 0);
  return tokens > 0 ? tokens.toLocaleString("en") : "";
}

function cost(status) {
  const amount = status?.metered?.cost_usd ?? status?.usage?.cost_usd;
  return typeof amount === "number" ? `$${amount.toFixed(2)}` : "";
}

export async function workflowsPage(place) {
  const { worktrees, stopped } = await call("worktree_list");
  const statuses = await Promise.all([...worktrees, ...stopped].map((it) => of(it.id)));
  const rows = [...worktrees, ...stopped].map((it, at) => [
    h("a", { href: `#/workflow/${it.id}` }, it.id),
    it.branch || statuses[at]?.branch || "",
    it.ahead === undefined ? "" : String(it.ahead),
    state(statuses[at]?.state || (it.branch ? "open" : "stopped"), Boolean(it.branch)),
    used(statuses[at]), cost(statuses[at]),
  ]);
  place.append(h("h1", {}, "Workflows"), h("div", { class: "wide" },
    table("Workflows with a worktree", ["Workflow", "Branch", "Commits", "State", "Tokens", "Cost"], rows, "There is no workflow. `coracle worktree create` makes one.")));
}

export async function workflowPage(place, id) {
  const changes = h("div", {});
  const show = async () => {
    const { files, patch: text, omitted_files: omitted } = await call("worktree_diff", { workflow: id });
    replace(changes,
      files.length === 0 ? h("p", { class: "empty" }, "Nothing is changed.") : text && patch(text, `Changes of workflow ${id}`),
      omitted.length > 0 && h("p", { class: "help" }, `Not shown, since the patch is long: ${omitted.join(", ")}`),
      files.length > 0 && button("Apply to the checkout", apply, { class: "primary" }));
    announce(`${files.length} changed ${files.length === 1 ? "file" : "files"}.`);
  };
  const apply = async () => {
    if (!await confirm("Apply the changes?", "They are written to the directory that the workflow began from: all of them, or none where something conflicts.", "Apply")) return;
    await call("worktree_apply", { workflow: id });
    replace(changes, h("p", { class: "done" }, "The changes were applied."));
    announce("The changes were applied.");
  };
  place.append(h("h1", {}, `Workflow ${id}`),
    h("section", { "aria-labelledby": "changes-title" }, h("h2", { id: "changes-title" }, "Changes"), button("Show changes", show), changes));
}

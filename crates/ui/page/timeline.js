// What was done, by the audit trail.
import { call } from "./api.js";
import { button } from "./controls.js";
import { h } from "./dom.js";
import { listing } from "./table.js";
import { milliseconds, state, when } from "./text.js";

const NEWEST = 200;

/** The newest acts, newest first, and how many are older. */
export async function newestActs(args) {
  const { acts, older } = await call("audit log", { newest: NEWEST, ...args });
  return { acts: acts.reverse(), older, newest: NEWEST };
}

function outcome(act) {
  if (act.outcome === "done") return act.exit_code > 0 && act.operation.startsWith("exec") && act.operation !== "exec_cancel" ? state(`Exit ${act.exit_code}`, "warn") : state("Done", "good");
  const why = act.rule || act.code;
  return h("span", {}, state(act.outcome, "bad"), why && h("span", { class: "minor" }, ` ${why}`));
}

const first = (act) => act.args?.command?.first;

/** What was done, newest first. `shown` reads it again. */
export function timelinePanel(args) {
  const older = h("p", { class: "help" });
  const columns = [
    { title: "When", kind: "lead", sort: (it) => it.time, cell: (it) => when(it.time) },
    { title: "Operation", sort: (it) => it.operation, cell: (it) => [h("span", {}, it.operation.replaceAll("_", " ")), first(it) && h("code", { class: "minor" }, ` ${first(it)} …`)] },
    ...(args.container ? [] : [{ title: "Machine", sort: (it) => it.container, cell: (it) => it.container ? h("a", { href: `#/machine/${it.container}` }, it.container) : "" }]),
    ...(args.session_name ? [] : [{ title: "Session", kind: "low", sort: (it) => it.session, cell: (it) => it.session || "" }]),
    { title: "By", kind: "low", sort: (it) => it.by, cell: (it) => it.by || "" },
    { title: "Outcome", sort: (it) => it.outcome, cell: outcome },
    { title: "Took", kind: "num", sort: (it) => it.duration_ms ?? -1, cell: (it) => milliseconds(it.duration_ms) },
  ];
  const list = listing({
    caption: "What was done, newest first", columns, empty: "Nothing has been done yet.",
    text: (it) => [it.operation, first(it), it.container, it.session, it.by, it.outcome, it.code].filter(Boolean).join(" "),
    tools: [button("Refresh", () => shown())],
  });
  async function shown() {
    try {
      const answer = await newestActs(args);
      list.show(answer.acts);
      older.textContent = answer.older > 0 ? `${answer.older.toLocaleString("en")} older entries are not shown: coracle audit log has them.` : "";
    } catch (error) {
      list.fail(error);
    }
  }
  return { element: h("div", {}, list.element, older), shown };
}

// Sessions: what each did, by the audit trail, and what it changed in copied files.
import { call, machines } from "./api.js";
import { announce, button, confirm, h, replace, table, when } from "./dom.js";
import { patch } from "./diff.js";

const NEWEST = 200;

function outcome(act) {
  if (act.outcome === "done") return act.exit_code > 0 ? `exit ${act.exit_code}` : "done";
  return act.rule ? `${act.outcome}: ${act.rule}` : act.code ? `${act.outcome}: ${act.code}` : act.outcome;
}

function row(act) {
  const first = act.args?.command?.first;
  const took = act.duration_ms === null || act.duration_ms === undefined ? "" : act.duration_ms < 1000 ? `${act.duration_ms} ms` : `${(act.duration_ms / 1000).toFixed(1)} s`;
  return [act.time ? when(act.time) : "", act.by || "", act.session || "", `${act.operation}${first ? ` ${first} …` : ""}`, act.container || "", outcome(act), took];
}

const COLUMNS = ["When", "By", "Session", "Operation", "Machine", "Outcome", "Took"];

/** The newest acts, newest first, and how many are older. */
async function newest(args) {
  const { acts, older } = await call("audit log", { newest: NEWEST, ...args });
  return { acts: acts.reverse(), older };
}

/** What was done, newest first. */
export async function timeline(args) {
  const { acts, older } = await newest(args);
  return [
    table("What was done, newest first", COLUMNS, acts.map(row), "Nothing has been done yet."),
    older > 0 && h("p", { class: "help" }, older === 1 ? "1 older act is not shown." : `${older} older acts are not shown.`),
  ];
}

/** Files that an answer passes over. */
const passedOver = (answer) => (answer.passed_over || []).map((it) => h("li", {}, `${it.path} is passed over: ${it.reason}`));

export async function sessionsPage(place) {
  const [{ acts: all, older }, { containers }] = await Promise.all([newest({}), machines()]);
  const names = [...new Set([...containers.map((it) => it.session), ...all.map((it) => it.session)].filter(Boolean))];
  const rows = names.map((name) => {
    const [own, last] = [containers.filter((it) => it.session === name), all.find((it) => it.session === name)];
    return [h("a", { href: `#/session/${name}` }, name), String(own.length), last?.by || "", last?.operation || "", last?.time ? when(last.time) : ""];
  });
  place.append(h("h1", {}, "Sessions"), h("div", { class: "wide" },
    table("Sessions with machines or recent acts", ["Session", "Machines", "By", "Last operation", "When"], rows, "No session has done anything yet."),
    older > 0 && h("p", { class: "help" }, `Only the newest ${NEWEST} acts are looked at: sessions without machines that did nothing since are missing.`)));
}

export async function sessionPage(place, name) {
  const changes = h("div", {});
  const show = async () => {
    const answer = await call("workspace diff", {}, name);
    const files = answer.files || [];
    const notes = [...files.filter((it) => !it.diff).map((it) => h("li", {}, `${it.change} ${it.path}${it.note ? `: ${it.note}` : ""}`)), ...passedOver(answer)];
    const text = files.map((it) => it.diff || "").join("");
    replace(changes,
      files.length === 0 && h("p", { class: "empty" }, "Nothing is changed."),
      text && patch(text, `Changes of session ${name}`),
      notes.length > 0 && h("ul", {}, notes),
      files.length > 0 && button("Apply to this host", apply, { class: "primary" }));
    announce(`${files.length} changed ${files.length === 1 ? "file" : "files"}.`);
  };
  const apply = async () => {
    if (!await confirm("Apply the changes?", "The files are written to the directories of this host that they were copied from.", "Apply")) return;
    const answer = await call("workspace apply", {}, name);
    const { files, protected: kept } = answer;
    replace(changes, h("p", { class: "done" }, `${files.length} ${files.length === 1 ? "file was" : "files were"} written.`),
      h("ul", {}, files.map((it) => h("li", {}, `${it.change} ${it.path}`)), (kept || []).map((it) => h("li", {}, `not written: ${it} has a protected name`)), passedOver(answer)));
    announce("The changes were applied.");
  };
  const history = h("div", { class: "wide" });
  place.append(h("h1", {}, `Session ${name}`),
    h("section", { "aria-labelledby": "changes-title" }, h("h2", { id: "changes-title" }, "Changes of the workspace"),
      h("p", { class: "help" }, "Files of its workspace that are not as they were copied in from this host."), button("Show changes", show), changes),
    h("section", { "aria-labelledby": "timeline-title" }, h("h2", { id: "timeline-title" }, "Timeline"), history));
  replace(history, await timeline({ session_name: name }));
}

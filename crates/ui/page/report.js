// What was done when a machine was created, and whether it was seen to work.
import { h } from "./dom.js";
import { stepMark, stepName } from "./steps.js";
import { count, milliseconds, prose } from "./text.js";

const items = (step) => (step.items || []).map((it) => {
  const text = [it.error, it.detail, it.hint].filter(Boolean).join("; ");
  return h("li", {}, stepMark(it.status), h("span", { class: "name" }, prose(it.name)), text && h("span", { class: "minor" }, prose(text)), it.output && h("pre", { class: "output" }, it.output));
});

function step(it, isOpen) {
  const head = [stepMark(it.status), h("span", { class: "name" }, stepName(it.name)), h("span", { class: "detail" }, prose(it.error || it.detail || "")), h("span", { class: "minor num" }, it.duration_ms ? milliseconds(it.duration_ms) : "")];
  const more = [it.error && it.detail && h("p", {}, prose(it.detail)), it.probe && h("p", { class: "minor" }, prose(`Checked: ${it.probe}.`)), items(it).length > 0 && h("ul", { class: "steps" }, items(it))].filter(Boolean);
  return more.length === 0 ? h("div", { class: "step" }, h("div", { class: "step-head" }, head)) : h("details", { class: "step", open: isOpen }, h("summary", { class: "step-head" }, head), h("div", { class: "step-more" }, more));
}

export function reportPanel(machine) {
  const all = machine.status.metadata?.provisioning_report || [];
  const skipped = all.filter((it) => it.status === "skipped");
  const done = all.filter((it) => it.status === "success");
  const wrong = all.filter((it) => !skipped.includes(it) && !done.includes(it));
  const summary = [wrong.length > 0 && `${count(wrong.length, "step")} did not succeed`, `${done.length} succeeded`, `${skipped.length} skipped`].filter(Boolean).join(", ");
  const element = all.length === 0
    ? h("div", { class: "card" }, h("p", { class: "empty" }, "There is no report of this machine."))
    : h("section", { class: "card report", "aria-label": "Report" }, h("p", { class: "help" }, `${summary}.`),
      wrong.map((it) => step(it, true)), done.map((it) => step(it, false)),
      skipped.length > 0 && h("details", { class: "skipped" }, h("summary", {}, `${count(skipped.length, "step")} skipped`), skipped.map((it) => step(it, false))));
  return { element };
}

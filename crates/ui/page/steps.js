// What a call does, step by step, while it runs.
import { h, icon } from "./dom.js";
import { prose, span } from "./text.js";

const KINDS = { success: "good", skipped: "", failed: "bad", partial: "warn" };
const MARKS = { success: "✓", skipped: "–", failed: "✗", partial: "!" };

export const stepName = (name) => ({ ca_certificates: "certificates", env_passthrough: "environment" })[name] || name.replaceAll("_", " ");

/** The sign of a step's outcome, with its word for those who do not see it. */
export const stepMark = (status) =>
  h("span", { class: `mark ${KINDS[status] ?? "warn"}` }, h("span", { "aria-hidden": "true" }, MARKS[status] || "!"), h("span", { class: "unseen" }, `${status}: `));

/** A list of steps that grows: `event` takes each event of the call. */
export function liveSteps(first) {
  const began = Date.now();
  const done = h("ol", { class: "steps" });
  const now = h("span", {}, first);
  const clock = h("span", { class: "minor num" });
  const meter = h("progress", { "aria-label": "Progress", hidden: true });
  const tick = () => { clock.textContent = span((Date.now() - began) / 1000); };
  const timer = setInterval(tick, 1000);
  tick();
  const current = h("div", { class: "now", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), now, clock);
  return {
    element: h("div", { class: "live" }, done, current, meter),
    event(it) {
      if (it.event === "progress") {
        now.replaceChildren(...prose(it.message));
        meter.hidden = !it.total;
        if (it.total) Object.assign(meter, { max: it.total, value: it.done });
      }
      if (it.event !== "step" || it.step.status === "skipped") return;
      done.append(h("li", {}, stepMark(it.step.status), h("span", { class: "name" }, stepName(it.step.name)), h("span", { class: "minor" }, prose(it.step.error || it.step.detail || ""))));
      done.lastChild.scrollIntoView({ block: "nearest" });
      meter.hidden = true;
    },
    end(text, isGood) {
      clearInterval(timer);
      meter.hidden = true;
      current.firstChild.replaceWith(h("span", { class: `mark ${isGood ? "good" : "bad"}` }, icon(isGood ? "check" : "close")));
      now.replaceChildren(...prose(text));
    },
    stop: () => clearInterval(timer),
  };
}

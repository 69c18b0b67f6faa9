// The task of an agent, what it does, and its answer.
import { h } from "./dom.js";
import { prose } from "./text.js";

// Longer output is folded.
const SHORT = 12;

/** What a call of a tool is about: its path, command or pattern. */
function about(input) {
  if (!input || typeof input !== "object") return "";
  const { command, path, file_path: file, pattern } = input;
  const main = command ?? path ?? file ?? pattern ?? Object.values(input).find((it) => typeof it === "string") ?? "";
  const text = Array.isArray(main) ? main.join(" ") : String(main);
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
}

const paragraphs = (text) => String(text).split(/\n{2,}/).map((it) => h("p", {}, prose(it)));

function toolCall(event) {
  const outcome = h("span", { class: "state busy" }, "running");
  const output = h("div", {});
  const element = h("details", { class: "tool" },
    h("summary", {}, h("span", { class: "name" }, event.name), h("code", {}, about(event.input)), outcome),
    h("pre", { class: "output", tabindex: "0", "aria-label": "Input" }, JSON.stringify(event.input, null, 2)), output);
  return {
    element,
    result({ output: text, is_error: isError }) {
      outcome.className = `state ${isError ? "bad" : "good"}`;
      outcome.textContent = isError ? "failed" : "done";
      element.open = isError && text.split("\n").length <= SHORT;
      output.replaceChildren(h("pre", { class: "output", tabindex: "0", "aria-label": "Output" }, text));
    },
  };
}

const message = (kind, who, ...content) => h("article", { class: `message ${kind}` }, h("h3", {}, who), content);

/** A conversation that grows. */
export function conversation(prompt) {
  const list = h("div", { class: "transcript", role: "log", "aria-label": "Conversation" });
  const waiting = h("p", { class: "now", hidden: true }, h("span", { class: "spinner", "aria-hidden": "true" }), "The agent is working…");
  const calls = new Map();
  if (prompt) list.append(message("task", "Task", paragraphs(prompt)));

  const SHOWN = {
    started: (it) => it.recreated && h("p", { class: "notice" }, `It works in a new container: ${it.recreated}`),
    thinking: (it) => message("says", it.model || "Agent", paragraphs(it.text)),
    tool_call: (it) => { const made = toolCall(it); calls.set(it.id, made); return made.element; },
    tool_result: (it) => { calls.get(it.id)?.result(it); return null; },
    warning: (it) => h("p", { class: "notice" }, prose(it.message)),
    result: (it) => it.is_error
      ? message("result bad", "It failed", paragraphs(it.content || it.message || ""), it.hint && h("p", { class: "minor" }, prose(it.hint)))
      : message("result", "Result", typeof it.content === "string" ? paragraphs(it.content) : h("pre", { class: "output" }, JSON.stringify(it.content, null, 2))),
  };

  return {
    element: h("div", { class: "card" }, list, waiting),
    add(events) {
      const isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 40;
      for (const it of events) {
        const shown = SHOWN[it.type]?.(it);
        if (shown) list.append(shown);
      }
      if (isAtEnd && events.length > 0 && scrollY > 0) waiting.scrollIntoView({ block: "nearest" });
    },
    working(isWorking) { waiting.hidden = !isWorking; },
    /** A run that ended without a result. */
    trouble({ message: text, state }) {
      if (!list.querySelector(".result")) list.append(message("result bad", state === "lost" ? "It was lost" : "It ended without a result", paragraphs(text)));
    },
  };
}

// Elements, and texts that several pages write. Texts become text nodes only, never markup.

/** `h("a", { href: "#/" }, "text", child)`; properties that begin with `on` are listeners. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((it) => it !== null && it !== undefined && it !== false));
  return element;
}

/** A table whose rows are lists of cells. The first cell of a row is its heading. */
export function table(caption, columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  const cell = (content, at) =>
    h(at === 0 ? "th" : "td", { ...(at === 0 ? { scope: "row", role: "rowheader" } : { role: "cell" }), "data-label": columns[at] }, content);
  // The roles stay where a narrow page lays the table out as blocks.
  return h("table", { role: "table" },
    h("caption", {}, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((it) => h("th", { scope: "col", role: "columnheader" }, it)))),
    h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, row.map(cell)))));
}

/** Replaces the content unless it is the same, so that focus and selection stay. */
export function replace(place, ...content) {
  const next = h("div", {}, ...content);
  if (sameMarkup(next, place)) return;
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
  place.replaceChildren(...next.childNodes);
  if (focused) place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function sameMarkup(next, place) {
  return next.childNodes.length === place.childNodes.length && [...next.childNodes].every((it, at) => it.isEqualNode(place.childNodes[at]));
}

/** Tells a change to all, also to those who hear the page. */
export function announce(text) {
  document.getElementById("status").textContent = text;
}

export function failure(error) {
  return h("div", { class: "failure", role: "alert" },
    h("p", {}, error.message || String(error)),
    error.hint && h("p", { class: "hint" }, error.hint),
    error.code && h("p", { class: "code" }, h("code", {}, error.code)));
}

// Keys of buttons whose work goes on. A list that is refreshed meanwhile has other buttons for it.
const busy = new Set();

/** A button that does its work once at a time, and shows what fails above the page's content. In a list it needs a `data-key`. */
export function button(text, work, properties = {}) {
  const named = properties["data-key"];
  const own = h("button", {
    type: "button", ...properties, "data-key": named || text, disabled: busy.has(named),
    onclick: async () => {
      own.disabled = true;
      if (named) busy.add(named);
      try { await work(); } catch (error) { announce(""); showFailure(error); }
      busy.delete(named);
      own.disabled = false;
      if (named) for (const it of document.querySelectorAll(`[data-key="${CSS.escape(named)}"]`)) it.disabled = false;
    },
  }, text);
  return own;
}

export function showFailure(error) {
  const main = document.getElementById("main");
  main.querySelector(":scope > .failure")?.remove();
  const heading = main.querySelector("h1");
  heading ? heading.after(failure(error)) : main.prepend(failure(error));
  main.querySelector(".failure").scrollIntoView({ block: "nearest" });
}

// Warnings that were closed.
const closed = new Set();

/** What calls warn of, above each page until it is closed. With `polled`, what was closed before is not shown again. */
export function showWarnings(warnings, about, polled) {
  const place = document.getElementById("warnings");
  const shown = [...place.querySelectorAll("li")].map((it) => it.textContent);
  const texts = warnings.map((it) => [about, it.message || it.code].filter(Boolean).join(": "));
  const added = texts.filter((it) => !shown.includes(it) && !(polled && closed.has(it)));
  if (added.length === 0) return;
  const all = [...new Set([...shown, ...added])];
  const close = () => {
    for (const it of all) closed.add(it);
    place.replaceChildren();
    document.getElementById("main").focus();
  };
  place.replaceChildren(h("div", { class: "warning" },
    h("ul", {}, all.map((it) => h("li", {}, it))),
    button("Close", close, { "aria-label": "Close the warnings", "data-key": "close warnings" })));
}

/** Asks before something is lost. */
export function confirm(title, text, action) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
      h("h2", { id: "dialog-title" }, title),
      h("p", {}, text),
      h("form", { method: "dialog" },
        h("button", { value: "no", autofocus: true }, "Keep it"),
        h("button", { value: "yes", class: "danger" }, action)));
    dialog.addEventListener("close", () => { resolve(dialog.returnValue === "yes"); dialog.remove(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function bytes(count) {
  if (count === null || count === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${at === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[at]}`;
}

export function ago(time) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  if (!Number.isFinite(seconds)) return "";
  const [count, unit] = seconds < 60 ? [seconds, "s"] : seconds < 3600 ? [seconds / 60, "min"] : seconds < 172800 ? [seconds / 3600, "h"] : [seconds / 86400, "days"];
  return `${Math.floor(count)} ${unit} ago`;
}

export const when = (time) => h("time", { datetime: time, title: time }, ago(time));

export const percent = (value) => (value === null || value === undefined ? "" : `${value.toFixed(1)} %`);

export const state = (text, good) => h("span", { class: good ? "state good" : "state" }, text);

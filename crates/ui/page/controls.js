// Buttons, menus, tabs and dialogs.
import { h, icon } from "./dom.js";
import { announce, showFailure } from "./messages.js";
import { prose } from "./text.js";

// Keys of buttons whose work goes on. A list that is refreshed meanwhile has other buttons for it.
const busy = new Set();

/** Does the work, and shows what fails. */
export async function run(work) {
  try {
    await work();
  } catch (error) {
    announce("");
    showFailure(error);
  }
}

/** A button that does its work once at a time. In a list it needs a `data-key`. */
export function button(content, work, properties = {}) {
  const named = properties["data-key"];
  const own = h("button", {
    type: "button", ...properties, "data-key": named || (typeof content === "string" ? content : properties["aria-label"]), disabled: busy.has(named),
    onclick: async () => {
      own.disabled = true;
      if (named) busy.add(named);
      await run(work);
      busy.delete(named);
      own.disabled = false;
      if (named) for (const it of document.querySelectorAll(`[data-key="${CSS.escape(named)}"]`)) it.disabled = false;
    },
  }, content);
  return own;
}

/** A button that copies a text. */
export function copyButton(text, label) {
  return button(icon("copy"), async () => {
    await navigator.clipboard.writeText(text);
    announce("Copied.");
  }, { class: "quiet", "aria-label": label, title: label, "data-key": `copy ${text}` });
}

/** A line that can be copied; what is shown of it may be shorter. */
export const copyLine = (text, label = "Copy", shown = text) => h("div", { class: "copy-line" }, h("code", { title: shown === text ? null : text }, shown), copyButton(text, label));

function place(popup, trigger) {
  const [at, size] = [trigger.getBoundingClientRect(), popup.getBoundingClientRect()];
  const left = Math.max(8, Math.min(at.right - size.width, innerWidth - size.width - 8));
  const below = at.bottom + 4 + size.height < innerHeight;
  popup.style.left = `${left}px`;
  popup.style.top = `${below ? at.bottom + 4 : Math.max(8, at.top - size.height - 4)}px`;
}

/** Opens something beside a button until the user looks elsewhere. */
function openPopup(popup, trigger) {
  document.body.append(popup);
  popup.addEventListener("toggle", ({ newState }) => {
    if (newState !== "closed") return;
    const hadFocus = popup.contains(document.activeElement) || document.activeElement === document.body;
    popup.remove();
    trigger.setAttribute("aria-expanded", "false");
    if (hadFocus) (trigger.isConnected ? trigger : document.querySelector(`[data-key="${CSS.escape(trigger.dataset.key)}"]`))?.focus();
  });
  popup.showPopover();
  place(popup, trigger);
  trigger.setAttribute("aria-expanded", "true");
}

const ARROWS = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };

/** Moves the focus among elements by arrow keys, Home and End. Returns whether it did. */
function moveFocus(event, elements) {
  const at = elements.indexOf(document.activeElement);
  const next = event.key === "Home" ? 0 : event.key === "End" ? elements.length - 1 : event.key in ARROWS ? at + ARROWS[event.key] : null;
  if (next === null) return false;
  event.preventDefault();
  elements[(next + elements.length) % elements.length].focus();
  return true;
}

/**
 * A button with a menu. `items` gives what is in it when it is opened: `{ text, work }`, `{ text, href }`, with `danger`
 * for what removes something and `checked` for one that is chosen.
 */
export function menu(label, items, { content = icon("more"), key = label, ...properties } = {}) {
  const open = () => {
    const row = (item) => {
      const role = "checked" in item ? "menuitemradio" : "menuitem";
      const shared = { role, tabindex: "-1", class: item.danger ? "danger" : "", "aria-checked": "checked" in item ? String(item.checked) : null };
      if (item.href) return h("a", { ...shared, href: item.href, onclick: () => popup.hidePopover() }, item.text);
      const choose = () => { popup.hidePopover(); run(item.work); };
      return h("button", { ...shared, type: "button", onclick: choose }, item.text);
    };
    const popup = h("div", {
      class: "menu", role: "menu", popover: "auto", "aria-label": label,
      onkeydown: (event) => {
        if (event.key === "Tab") popup.hidePopover();
        else moveFocus(event, [...popup.children]);
      },
    }, items().filter(Boolean).map(row));
    openPopup(popup, trigger);
    popup.firstElementChild?.focus();
  };
  const trigger = h("button", {
    type: "button", class: "quiet", title: label, "aria-label": label, "data-key": key, ...properties, "aria-haspopup": "menu", "aria-expanded": "false",
    onclick: open, onkeydown: (event) => { if (event.key === "ArrowDown") { event.preventDefault(); open(); } },
  }, content);
  return trigger;
}

/** A short text that shows the whole one, ready to be copied, when it is pressed. */
export function shortened(text, whole, label) {
  if (text === whole) return text;
  const open = () => openPopup(h("div", { class: "hint-popup", popover: "auto" }, copyLine(whole, `Copy ${label}`)), trigger);
  const trigger = h("button", { type: "button", class: "short", title: whole, "aria-label": `${text}: show the whole ${label}`, "aria-expanded": "false", "data-key": `whole ${whole}`, onclick: open }, text);
  return trigger;
}

/**
 * Tabs, one of which is shown. Each is `{ id, title, panel }`, where `panel` makes `{ element, shown, update, end }` when it is
 * opened for the first time. `chosen` is called with the id of the one that is shown.
 */
export function tabs(label, all, first, chosen) {
  const panels = new Map();
  const tab = ({ id, title }) => h("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, "data-key": `tab ${id}`, onclick: () => show(id),
  }, title);
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label }, all.map(tab));
  list.addEventListener("keydown", (event) => { if (moveFocus(event, [...list.children])) document.activeElement.click(); });
  const places = h("div", { class: "panels" });
  let current = null;

  function show(id) {
    const found = all.find((it) => it.id === id) || all[0];
    current = found.id;
    for (const it of list.children) {
      const isIt = it.id === `tab-${found.id}`;
      it.setAttribute("aria-selected", String(isIt));
      it.tabIndex = isIt ? 0 : -1;
      if (isIt) it.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    if (!panels.has(found.id)) {
      const made = found.panel();
      panels.set(found.id, made);
      places.append(h("div", { role: "tabpanel", id: `panel-${found.id}`, "aria-labelledby": `tab-${found.id}`, class: `panel ${found.id}` }, made.element));
    }
    for (const it of places.children) it.hidden = it.id !== `panel-${found.id}`;
    chosen(found.id);
    run(async () => panels.get(found.id).shown?.());
  }

  return {
    element: h("div", { class: "tabbed" }, list, places),
    show: () => show(first),
    open: show,
    current: () => current,
    update: (...args) => panels.forEach((it) => it.update?.(...args)),
    end: () => panels.forEach((it) => it.end?.()),
  };
}

/** A dialog that is shown until it is closed. */
export function openDialog(title, content, { id = "dialog-title", closed = () => {}, wide = false } = {}) {
  const close = button(icon("close"), () => dialog.close(), { class: "quiet", "aria-label": "Close", "data-key": "close dialog" });
  const dialog = h("dialog", { "aria-labelledby": id, class: wide ? "wide" : "" },
    h("div", { class: "dialog-head" }, h("h2", { id }, title), close),
    h("div", { class: "content" }, content));
  dialog.addEventListener("close", () => { dialog.remove(); closed(dialog.returnValue); });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks before something is lost. */
export function confirm(title, text, action) {
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog", class: "actions end" },
      h("button", { value: "no", autofocus: true }, "Cancel"),
      h("button", { value: "yes", class: "primary danger" }, action));
    openDialog(title, [h("p", {}, prose(text)), form], { closed: (value) => resolve(value === "yes") });
  });
}

/** A labelled field of a form. */
export function field(label, id, properties = {}, help = null) {
  const { options, tag = "input", ...rest } = properties;
  const name = id.slice(id.indexOf("-") + 1);
  const shared = { id, name, autocomplete: "off", spellcheck: "false", ...rest, "aria-describedby": help && `${id}-help` };
  const input = options ? h("select", shared, options.map(([value, text]) => h("option", { value }, text))) : h(tag, shared);
  return h("div", { class: "field" }, h("label", { for: id }, label), input, help && h("p", { class: "help", id: `${id}-help` }, prose(help)));
}

export const check = (label, name) => h("label", { class: "check" }, h("input", { type: "checkbox", name }), h("span", {}, prose(label)));

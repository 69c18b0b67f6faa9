// Shortcuts of the keyboard, and the dialog that lists them.
import { openDialog } from "./controls.js";
import { h } from "./dom.js";

const PAGES = { m: "#/", s: "#/sessions", w: "#/workflows" };

const KEYS = [["/", "Search the list"], ["n", "New machine or workflow"], ["g then m", "Machines"], ["g then s", "Sessions"], ["g then w", "Workflows"], ["?", "These shortcuts"]];
const ALWAYS = [["Arrow keys", "Move in tabs and menus"], ["Escape", "Close a menu or dialog"], ["Ctrl+Shift+Escape", "Leave a terminal"]];

const areOn = () => localStorage.getItem("shortcuts") !== "off";

export function openShortcuts() {
  const rows = (all) => h("dl", { class: "keys" }, all.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text))));
  const toggle = h("input", { type: "checkbox", checked: areOn(), onchange: ({ target }) => localStorage.setItem("shortcuts", target.checked ? "on" : "off") });
  openDialog("Keyboard", [rows(ALWAYS), h("label", { class: "check" }, toggle, h("span", {}, "Use single keys as shortcuts")), rows(KEYS)]);
}

const isTyping = (target) => target.closest("input, textarea, select, [contenteditable], .terminal-box, dialog, [popover]");

export function listenToKeys() {
  let isGoing = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !areOn() || isTyping(event.target)) return;
    const page = isGoing && PAGES[event.key];
    isGoing = event.key === "g";
    const target = event.key === "/" ? document.querySelector("#main .panel:not([hidden]) .search, #main .page > .card .search") : event.key === "n" ? document.querySelector("[data-shortcut='n']") : null;
    if (page) location.hash = page;
    else if (event.key === "?") openShortcuts();
    else if (target && event.key === "/") target.focus();
    else if (target) target.click();
    else return;
    event.preventDefault();
  });
}

// What is reported: changes, failures, warnings, and what a page shows in place of content.
import { h, icon } from "./dom.js";
import { prose } from "./text.js";

const status = () => document.getElementById("status");
let fading = null;

/** Reports a change to all, also to those who listen to the page. It goes after a while. */
export function announce(text) {
  clearTimeout(fading);
  status().textContent = text;
  if (text) fading = setTimeout(() => { status().textContent = ""; }, 10000);
}

export function failure(error) {
  return h("div", { class: "failure", role: "alert" },
    h("p", { class: "what" }, prose(error.message || String(error))),
    error.hint && h("p", { class: "hint" }, prose(error.hint)),
    error.code && h("p", { class: "code" }, error.code));
}

/** Shows below the heading of the page, or in the open dialog, what failed. */
export function showFailure(error) {
  const place = document.querySelector("dialog[open] .content") || document.querySelector("#main .page");
  clearFailure(place);
  const heading = place.querySelector(":scope > .head");
  heading ? heading.after(failure(error)) : place.prepend(failure(error));
  place.querySelector(".failure").scrollIntoView({ block: "nearest" });
}

export const clearFailure = (place) => place.querySelector(":scope > .failure")?.remove();

// Warnings that were closed.
const closed = new Set();
let isMoving = false;

/**
 * Shows what calls warn of, above the page. It stays until it is closed, or until another page is opened. With `polled`,
 * what was closed before is not shown again.
 */
export function showWarnings(warnings, about, polled) {
  const place = document.getElementById("warnings");
  const shown = [...place.querySelectorAll("li")].map((it) => it.dataset.text);
  const texts = warnings.map((it) => [about, it.message || it.code].filter(Boolean).join(": "));
  const added = texts.filter((it) => !shown.includes(it) && !(polled && closed.has(it)));
  if (added.length === 0) return;
  const all = [...new Set([...shown, ...added])];
  const close = () => {
    for (const it of all) closed.add(it);
    place.replaceChildren();
    document.getElementById("main").focus();
  };
  const list = h("ul", {}, all.map((it) => h("li", { "data-text": it }, prose(it))));
  const dismiss = h("button", { type: "button", class: "quiet", "aria-label": "Close the warnings", "data-key": "close warnings", onclick: close }, icon("close"));
  place.replaceChildren(h("div", { class: "warning" }, list, dismiss));
}

/** Opens another page after something that was done on this one: what it warned of goes with it. */
export function moveTo(hash) {
  isMoving = true;
  location.hash = hash;
}

/** Another page is opened. */
export function leavePage() {
  if (!isMoving) document.getElementById("warnings").replaceChildren();
  if (!isMoving) announce("");
  isMoving = false;
}

/** The way to the list that a page belongs to. */
export const back = (href, label) => h("nav", { class: "crumbs", "aria-label": "Back" }, h("a", { href }, h("span", { "aria-hidden": "true" }, "‹ "), label));

/** In place of content: why there is none, and what to do. */
export function emptyState(picture, title, text, ...actions) {
  return h("div", { class: "empty-state" }, icon(picture), h("h2", {}, title), h("p", {}, prose(text)),
    actions.length > 0 && h("div", { class: "actions" }, actions));
}

/** Something that is not there, and the way back. */
export function notFound(place, title, text, href, label) {
  const head = h("div", { class: "head" }, h("h1", {}, title));
  place.replaceChildren(head, h("div", { class: "card" }, h("div", { class: "empty-state" }, h("p", {}, prose(text)), h("a", { class: "button primary", href }, label))));
}

/** What a page shows until its content is there. */
export function skeleton(lines = 4) {
  const bars = Array.from({ length: lines }, (_, at) => h("div", { class: "bar", style: `width: ${92 - (at * 37) % 45}%` }));
  return h("div", { class: "skeleton" }, h("p", { class: "unseen" }, "Loading…"), bars, h("p", { class: "late" }, "This takes longer than usual."));
}

// Which page is shown. Each page is a function of its place and address, and may return what ends it.
import { approvalsPage } from "./approvals.js";
import { menu } from "./controls.js";
import { h, icon } from "./dom.js";
import { listenToKeys, openShortcuts } from "./keys.js";
import { machinePage } from "./machine.js";
import { machinesPage } from "./machines.js";
import { failure, leavePage, notFound } from "./messages.js";
import { sessionPage, sessionsPage } from "./sessions.js";
import { workflowPage } from "./workflow.js";
import { workflowsPage } from "./workflows.js";

const NAME = "([\\w.-]+)";
const at = (pattern) => new RegExp(`^#/${pattern}$`);

const PAGES = [
  [at(""), "#/", machinesPage],
  [at(`machine/${NAME}(?:/([a-z]+))?`), "#/", machinePage],
  [at("sessions"), "#/sessions", sessionsPage],
  [at(`session/${NAME}(?:/([a-z]+))?`), "#/sessions", sessionPage],
  [at("network"), "#/network", approvalsPage],
  [at("workflows"), "#/workflows", workflowsPage],
  [at(`workflow/(?:${NAME}/)??${NAME}(?:/(conversation|changes|details))?`), "#/workflows", workflowPage],
];

const main = document.getElementById("main");
let end = null;
let turns = 0;

function nothing(place) {
  notFound(place, "Page not found", "There is nothing at this address.", "#/", "Show all machines");
}

async function show() {
  const address = location.hash || "#/";
  if (!address.startsWith("#/")) return;
  const isFirst = turns === 0;
  turns += 1;
  const turn = turns;
  end?.();
  end = null;
  leavePage();
  document.querySelectorAll("dialog[open]").forEach((it) => it.close());
  const [pattern, section, page] = PAGES.find(([it]) => it.test(address)) || [/^/, null, nothing];
  const place = h("div", { class: "page" });
  main.replaceChildren(place);
  for (const link of document.querySelectorAll("header nav a")) {
    link.getAttribute("href") === section ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  // The heading is there before the content is, and what the user does meanwhile keeps the focus.
  const ending = begin(page, place, pattern.exec(address).slice(1));
  name(place);
  const heading = place.querySelector("h1");
  if (!isFirst && heading) {
    heading.tabIndex = -1;
    heading.focus();
  }
  const ended = await ending;
  turn === turns ? end = ended : ended?.();
  if (turn === turns) name(place);
}

async function begin(page, place, words) {
  try {
    return await page(place, ...words);
  } catch (error) {
    place.append(failure(error));
    return undefined;
  }
}

function name(place) {
  const heading = place.querySelector("h1");
  document.title = heading ? `${heading.textContent} – Coracle` : "Coracle";
}

const THEMES = [["", "As the system"], ["light", "Light"], ["dark", "Dark"]];
const chosen = () => localStorage.getItem("theme") || "";
const choose = (theme) => document.dispatchEvent(new CustomEvent("themechoice", { detail: theme }));
document.getElementById("settings").append(
  h("button", { type: "button", class: "quiet shortcuts", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts", onclick: openShortcuts }, h("kbd", {}, "?")),
  menu("Theme", () => THEMES.map(([theme, text]) => ({ text, checked: chosen() === theme, work: () => choose(theme) })), { content: icon("theme") }));

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
listenToKeys();
window.addEventListener("hashchange", show);
show();

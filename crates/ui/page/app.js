// Which page is shown. Each page is a function of its place and address, and may return what ends it.
import { announce, failure, h } from "./dom.js";
import { machinesPage } from "./machines.js";
import { machinePage } from "./machine.js";
import { sessionPage, sessionsPage } from "./sessions.js";
import { workflowPage, workflowsPage } from "./workflows.js";

const PAGES = [
  [/^#\/machine\/([\w.-]+)$/, machinePage],
  [/^#\/session\/([\w.-]+)$/, sessionPage],
  [/^#\/sessions$/, sessionsPage],
  [/^#\/workflow\/([\w.-]+)$/, workflowPage],
  [/^#\/workflows$/, workflowsPage],
];

const main = document.getElementById("main");
let end = null;
let turns = 0;

async function show() {
  const address = location.hash || "#/";
  if (!address.startsWith("#/")) return;
  const isFirst = turns === 0;
  turns += 1;
  const turn = turns;
  end?.();
  end = null;
  announce("");
  const [page, words] = PAGES.map(([pattern, it]) => [it, pattern.exec(address)]).find(([, it]) => it) || [machinesPage, []];
  const place = h("div", { class: "page" });
  main.replaceChildren(place);
  for (const link of document.querySelectorAll("nav a")) {
    link.getAttribute("href") === address ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  try {
    const ended = await page(place, ...(words.slice ? words.slice(1) : []));
    turn === turns ? end = ended : ended?.();
  } catch (error) {
    place.append(failure(error));
  }
  const heading = main.querySelector("h1");
  document.title = heading ? `${heading.textContent} – Coracle` : "Coracle";
  if (!isFirst) {
    heading?.setAttribute("tabindex", "-1");
    heading?.focus();
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", show);
show();

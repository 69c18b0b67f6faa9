// Files of a machine, as the user who runs its commands.
import { fileAddress, files, fileStart } from "./api.js";
import { button, copyButton } from "./controls.js";
import { h, icon, replace } from "./dom.js";
import { failure } from "./messages.js";
import { listing } from "./table.js";
import { bytes, when } from "./text.js";

// Bytes of a file that are shown.
const SHOWN = 256 * 1024;

const below = (directory, name) => `${directory === "/" ? "" : directory}/${name}`;

const rights = (entry) => ({ dir: "d", link: "l", special: "s" }[entry.kind] || "-") + [6, 3, 0].map((shift) => ["r", "w", "x"].map((it, at) => (entry.mode >> shift) & (4 >> at) ? it : "-").join("")).join("");

export function filesPanel(machine) {
  const { name } = machine;
  let at;
  let began = false;
  const crumbs = h("nav", { class: "path", "aria-label": "Directory" });
  const viewer = h("div", {});
  const trouble = h("div", {});

  const opener = (entry) => {
    const path = below(at, entry.name);
    const open = entry.kind === "dir" ? () => go(path) : entry.kind === "link" ? () => go(path).catch(() => view(path, entry)) : () => view(path, entry);
    if (entry.kind === "special") return entry.name;
    return button(entry.name, open, { class: "linklike", "data-key": `file ${path}` });
  };
  const columns = [
    { title: "Name", kind: "lead", sort: (it) => `${it.kind === "dir" ? 0 : 1}${it.name}`, cell: (it) => h("span", { class: "named" }, icon(it.kind === "dir" ? "folder" : it.kind === "link" ? "link" : "file"), opener(it), it.link && h("span", { class: "minor" }, ` → ${it.link}`)) },
    { title: "Size", kind: "num", sort: (it) => it.size, cell: (it) => it.kind === "file" ? bytes(it.size) : "" },
    { title: "Changed", sort: (it) => it.changed_ms, cell: (it) => when(new Date(it.changed_ms).toISOString()) },
    { title: "Rights", kind: "low", cell: (it) => h("code", {}, rights(it)) },
    { title: "Download", kind: "last", cell: (it) => it.kind === "file" ? h("a", { class: "plain", href: fileAddress(name, below(at, it.name)), download: it.name, "aria-label": `Download ${it.name}` }, "Download") : "" },
  ];
  const list = listing({ caption: "Files of the directory", columns, sort: { column: 0, down: false }, text: (it) => it.name, empty: "The directory is empty.", tools: [button("Refresh", () => go(at))] });

  function drawCrumbs() {
    const parts = at.split("/").filter(Boolean);
    const step = (text, path) => h("button", { type: "button", class: "linklike", "data-key": `path ${path}`, onclick: () => go(path).catch(failed) }, text);
    replace(crumbs, step("/", "/"), parts.map((part, index) => [index > 0 && h("span", { "aria-hidden": "true" }, "/"), step(part, `/${parts.slice(0, index + 1).join("/")}`)]), copyButton(at, "Copy the path"));
  }
  const failed = (error) => replace(trouble, failure(error));

  async function go(path) {
    const answer = await files(name, path);
    at = answer.path;
    replace(trouble, answer.has_more && h("p", { class: "notice" }, `Only the first ${answer.entries.length.toLocaleString("en")} entries are shown.`));
    replace(viewer);
    if (list.search) list.search.value = "";
    drawCrumbs();
    list.show(answer.entries);
  }

  async function view(path, entry) {
    const content = await fileStart(name, path, SHOWN);
    const isText = !content.subarray(0, 8192).includes(0);
    const text = isText ? new TextDecoder().decode(content) : "";
    replace(viewer, h("section", { class: "card viewer", "aria-label": entry.name },
      h("div", { class: "toolbar" }, h("h3", {}, entry.name), h("span", { class: "minor" }, bytes(entry.size)),
        h("a", { class: "button", href: fileAddress(name, path), download: entry.name }, "Download"),
        h("button", { type: "button", class: "quiet", "aria-label": `Close ${entry.name}`, onclick: () => replace(viewer) }, icon("close"))),
      isText ? h("pre", { class: "output", tabindex: "0" }, text || "The file is empty.") : h("p", { class: "empty" }, "This is not a text."),
      entry.size > content.length && isText && h("p", { class: "help" }, `The first ${bytes(SHOWN)} are shown.`)));
    viewer.scrollIntoView({ block: "nearest" });
  }

  async function shown() {
    if (began || !machine.row.running) return;
    began = true;
    try { await go(); } catch (error) { began = false; list.fail(error); }
  }
  const content = h("div", {}, crumbs, trouble, list.element, viewer);
  const stopped = h("div", { class: "card" }, h("p", { class: "empty" }, "Start the machine to look at its files."));
  const update = () => { content.hidden = !machine.row.running; stopped.hidden = machine.row.running; };
  update();
  return { element: h("div", {}, stopped, content), shown, update };
}

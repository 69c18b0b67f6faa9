// A patch, file by file, with its lines marked. The marks `+` and `-` stay, so that color is not all that tells.
import { h } from "./dom.js";

// A file with more lines is folded at first.
const FOLDED = 400;

const kind = (line) => line.startsWith("@@") ? "hunk" : line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : null;

/** The files of a patch: their names, how many lines came and went, and the lines from the first hunk on. */
export function patchFiles(text) {
  const files = [];
  for (const line of text.replace(/\n$/, "").split("\n")) {
    if (line.startsWith("diff ") || (line.startsWith("--- ") && !files.at(-1)?.isHead)) {
      files.push({ isHead: true, name: "", note: "", lines: [], added: 0, removed: 0 });
      if (line.startsWith("diff ")) { files.at(-1).name = / b\/(.*)$/.exec(line)?.[1] || line.slice(5); continue; }
    }
    const file = files.at(-1);
    if (!file) continue;
    if (file.isHead && !line.startsWith("@@")) {
      const named = /^(?:\+\+\+|---) (?:[ab]\/)?(.*)$/.exec(line)?.[1];
      if (named && named !== "/dev/null") file.name = named;
      if (/^(new|deleted) file|^rename|^Binary|^old mode|^new mode/.test(line)) file.note = file.note || line.replace(/ mode \d+$/, "");
      continue;
    }
    file.isHead = false;
    file.lines.push(line);
    file.added += line.startsWith("+") ? 1 : 0;
    file.removed += line.startsWith("-") ? 1 : 0;
  }
  return files;
}

const numbers = (file) => h("span", { class: "numbers" }, h("span", { class: "plus" }, `+${file.added}`), " ", h("span", { class: "minus" }, `−${file.removed}`));

export function patch(text, label) {
  const files = patchFiles(text);
  const body = (file) => h("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": `Changes of ${file.name}` },
    file.lines.map((line) => h("span", { class: kind(line) }, `${line}\n`)));
  const one = (file, at) => h("details", { class: "diff-file", id: `diff-${at}`, open: file.lines.length > 0 && file.lines.length <= FOLDED },
    h("summary", {}, h("code", {}, file.name), file.note && h("span", { class: "minor" }, file.note), numbers(file)), file.lines.length > 0 && body(file));
  const jump = (at) => { const it = document.getElementById(`diff-${at}`); it.open = true; it.scrollIntoView({ block: "start" }); it.querySelector("summary").focus(); };
  const list = files.length > 1 && h("ul", { class: "diff-list", "aria-label": "Changed files" }, files.map((file, at) =>
    h("li", {}, h("button", { type: "button", class: "linklike", onclick: () => jump(at) }, file.name), numbers(file))));
  return h("div", { class: "diffs", role: "group", "aria-label": label }, list, files.map(one));
}

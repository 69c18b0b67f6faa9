// A patch with its lines marked. The marks `+` and `-` stay, so that color is not all that tells.
import { h } from "./dom.js";

const kind = (line) =>
  line.startsWith("+++") || line.startsWith("---") || line.startsWith("diff ") ? "file"
    : line.startsWith("@@") ? "hunk"
      : line.startsWith("+") ? "added"
        : line.startsWith("-") ? "removed" : null;

export function patch(text, label) {
  const lines = text.replace(/\n$/, "").split("\n");
  return h("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": label }, lines.map((it) => h("span", { class: kind(it) }, `${it}\n`)));
}

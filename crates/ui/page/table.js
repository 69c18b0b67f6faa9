// Tables that can be sorted and searched.
import { h, replace } from "./dom.js";
import { failure, skeleton } from "./messages.js";
import { prose } from "./text.js";

/**
 * A table of things that come and go. A column is `{ title, cell, sort, kind }`: what is shown of a thing, what it is sorted
 * by, and `num`, `low` (left out where there is little room), `last` or `lead`. `text` is what is searched; `empty` is shown
 * for none at all.
 */
export function listing({ caption, columns, empty, text = null, sort = null, tools = [], key = null }) {
  const place = h("div", { class: "rows" }, skeleton());
  const note = h("div", {});
  let items = null;
  let order = sort;

  const search = text && h("input", {
    type: "search", class: "search", placeholder: "Search", "aria-label": `Search: ${caption}`, autocomplete: "off", spellcheck: "false", oninput: () => draw(),
  });
  const bar = h("div", { class: "toolbar" }, search, tools);

  function heading(column, at) {
    const isIt = order?.column === at;
    const direction = isIt ? (order.down ? "descending" : "ascending") : null;
    const shared = { scope: "col", role: "columnheader", class: column.kind, "aria-sort": direction };
    if (!column.sort) return h("th", shared, column.kind === "last" ? h("span", { class: "unseen" }, column.title) : column.title);
    const turn = () => { order = { column: at, down: isIt ? !order.down : column.kind?.includes("num") || false }; draw(); };
    const mark = h("span", { class: "mark", "aria-hidden": "true" }, isIt ? (order.down ? "↓" : "↑") : "");
    return h("th", shared, h("button", { type: "button", class: "sort", "data-key": `sort ${column.title}`, onclick: turn }, column.title, mark));
  }

  function row(item) {
    const cell = (column, at) => h(at === 0 ? "th" : "td", {
      class: column.kind, "data-label": column.title, ...(at === 0 ? { scope: "row", role: "rowheader" } : { role: "cell" }),
    }, column.cell(item));
    return h("tr", { role: "row", "data-row": key?.(item) }, columns.map(cell));
  }

  function chosen() {
    const words = search?.value.toLowerCase().split(/\s+/).filter(Boolean) || [];
    const found = words.length === 0 ? [...items] : items.filter((it) => { const all = text(it).toLowerCase(); return words.every((word) => all.includes(word)); });
    if (!order) return found;
    const by = columns[order.column].sort;
    return found.sort((one, other) => compare(by(one), by(other)) * (order.down ? -1 : 1));
  }

  function draw() {
    bar.hidden = items.length === 0 || bar.childElementCount === 0;
    if (items.length === 0) return replace(place, typeof empty === "string" ? h("p", { class: "empty" }, prose(empty)) : empty());
    const shown = chosen();
    if (shown.length === 0) return replace(place, h("p", { class: "empty" }, "Nothing matches the search."));
    // The roles stay where a narrow page lays the table out as blocks.
    replace(place, h("table", { role: "table" },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(heading))),
      h("tbody", { role: "rowgroup" }, shown.map(row))));
  }

  return {
    element: h("div", { class: "card list" }, bar, note, place),
    search,
    /** Shows these things. */
    show(next) {
      items = next;
      replace(note);
      draw();
    },
    /** What was there stays, and the failure is above it. */
    fail(error) {
      replace(note, failure(error));
      if (items === null) place.replaceChildren();
    },
    redraw: () => { if (items) draw(); },
  };
}

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one ?? "").localeCompare(String(other ?? ""), "en", { numeric: true });
}

// Elements, and how a place gets new content. Texts become text nodes only, never markup.

/** `h("a", { href: "#/" }, "text", child)`; properties that begin with `on` are listeners. */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS("http:" + "//www.w3.org/2000/svg", tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(3).filter((it) => it !== null && it !== undefined && it !== false));
  return element;
}

const ICONS = {
  more: "M5 12h.01M12 12h.01M19 12h.01",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 13l4 4L19 7",
  folder: "M3 7v12h18V8h-9l-2-3H3z",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1",
  box: "M3 8l9-5 9 5v8l-9 5-9-5zM3 8l9 5 9-5M12 13v8",
  branch: "M6 4v12M6 16a2 2 0 1 0 .01 0M6 4a2 2 0 1 0 .01 0M18 6a2 2 0 1 0 .01 0M18 8c0 5-6 4-11 7",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  wide: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
};

export function icon(name) {
  const path = svg("path", { d: ICONS[name] });
  return svg("svg", { class: `icon icon-${name}`, viewBox: "0 0 24 24", "aria-hidden": "true" }, path);
}

/** Changes a place to the new content. What is the same stays, with its focus and selection. */
export function replace(place, ...content) {
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
  update(place, h("div", {}, ...content));
  if (focused && !place.contains(document.activeElement)) place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

// Elements without listeners of their own, whose children are compared one by one.
const FRAMES = ["DIV", "TABLE", "TBODY", "SECTION", "DL"];

function update(old, next) {
  const [before, after] = [[...old.childNodes], [...next.childNodes]];
  if (before.length !== after.length) return old.replaceChildren(...after);
  before.forEach((child, at) => {
    // What the user unfolded stays so.
    if (child.nodeName === "DETAILS" && after[at].nodeName === "DETAILS") after[at].open = child.open;
    if (child.isEqualNode(after[at])) return;
    const isFrame = FRAMES.includes(child.nodeName) && child.cloneNode(false).isEqualNode(after[at].cloneNode(false));
    isFrame ? update(child, after[at]) : child.replaceWith(after[at]);
  });
}

/** Calls again and again while the page is looked at, one call at a time. What it returns ends that. */
export function every(milliseconds, work) {
  let isWorking = false;
  const run = async () => {
    if (document.hidden || isWorking) return;
    isWorking = true;
    try { await work(); } finally { isWorking = false; }
  };
  const timer = setInterval(run, milliseconds);
  document.addEventListener("visibilitychange", run);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", run);
  };
}

// A line over time, as SVG. The numbers stand beside it as text.
import { bytes, h } from "./dom.js";

const [WIDTH, HEIGHT] = [400, 90];

function svg(tag, properties, ...children) {
  const element = document.createElementNS("http:" + "//www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function plot(title, samples, key, text = bytes) {
  const seen = samples.filter((it) => it[key] !== null && it[key] !== undefined);
  if (seen.length === 0) return h("figure", {}, h("figcaption", {}, `${title}: no samples yet`));
  const values = seen.map((it) => it[key]);
  const most = Math.max(...values);
  const [from, until] = [seen[0].at, seen.at(-1).at];
  const x = (it) => (until === from ? WIDTH : ((it.at - from) / (until - from)) * WIDTH);
  const y = (it) => HEIGHT - 2 - (most === 0 ? 0 : (it[key] / most) * (HEIGHT - 6));
  const points = seen.map((it) => `${x(it).toFixed(1)},${y(it).toFixed(1)}`).join(" ");
  const minutes = Math.round((until - from) / 60000);
  const words = `${title}: now ${text(values.at(-1))}, at most ${text(most)} in ${minutes < 1 ? "the last minute" : `the last ${minutes} min`}`;
  const line = svg("polyline", { points: seen.length === 1 ? `0,${y(seen[0])} ${points}` : points, class: "line", "vector-effect": "non-scaling-stroke" });
  const floor = svg("line", { x1: 0, y1: HEIGHT - 1, x2: WIDTH, y2: HEIGHT - 1, class: "axis", "vector-effect": "non-scaling-stroke" });
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, floor, line);
  return h("figure", {}, h("figcaption", {}, words), drawing);
}

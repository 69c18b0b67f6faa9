// A line over time, as SVG, with its axes. The numbers stand beside it as text.
import { h, svg } from "./dom.js";
import { bytes } from "./text.js";

const [WIDTH, HEIGHT] = [600, 120];

// Without a sample for so long, the line is broken.
const GAP = 20000;

// A round number at or above a value, of which a half is round too.
function roundUp(value, base) {
  const unit = base ** Math.floor(Math.log(Math.max(value, 1e-9)) / Math.log(base));
  const steps = base === 10 ? [1, 2, 4, 6, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  return unit * steps.find((it) => unit * it >= value);
}

/** Where the scale ends: at the limit, unless little of it is used. */
function top(most, limit, base) {
  const round = roundUp(Math.max(most, base === 10 ? 1 : 1 << 20), base);
  return limit && most > limit / 4 ? Math.max(limit, most) : round;
}

const clock = (time) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

function lines(samples, x, y) {
  const parts = [];
  let last = -Infinity;
  for (const it of samples) {
    if (it.at - last > GAP) parts.push([]);
    parts.at(-1).push(`${x(it.at).toFixed(1)},${y(it.value).toFixed(1)}`);
    last = it.at;
  }
  return parts;
}

/** What was used over time. `limit` is the most that may be used. */
export function plot(title, samples, key, { text = bytes, base = 1024, limit = null } = {}) {
  const seen = samples.filter((it) => it[key] !== null && it[key] !== undefined).map((it) => ({ at: it.at, value: it[key] }));
  if (seen.length === 0) return h("figure", { class: "plot" }, h("figcaption", {}, h("strong", {}, title), h("span", { class: "minor" }, "no samples yet")));
  const most = Math.max(...seen.map((it) => it.value));
  const now = seen.at(-1).value;
  const highest = top(most, limit, base);
  const until = seen.at(-1).at;
  const from = Math.min(seen[0].at, until - 60000);
  const x = (at) => ((at - from) / (until - from)) * WIDTH;
  const y = (value) => HEIGHT - (value / highest) * HEIGHT;
  const rule = (at, kind) => svg("line", { x1: 0, y1: at, x2: WIDTH, y2: at, class: kind, "vector-effect": "non-scaling-stroke" });
  const drawn = lines(seen, x, y).flatMap((points) => {
    const [first, last] = [points[0], points.at(-1)].map((it) => it.split(",")[0]);
    return [
      svg("polygon", { class: "area", points: `${first},${HEIGHT} ${points.join(" ")} ${last},${HEIGHT}` }),
      svg("polyline", { class: "line", points: points.length === 1 ? `${points[0]} ${points[0]}` : points.join(" "), "vector-effect": "non-scaling-stroke" }),
    ];
  });
  const limitLine = limit && limit <= highest ? rule(y(limit), "limit") : "";
  const minutes = Math.round((until - seen[0].at) / 60000);
  const limited = limit ? ` of ${text(limit)}` : "";
  const period = minutes < 1 ? "the last minute" : `the last ${minutes} min`;
  return h("figure", { class: "plot" },
    h("figcaption", {}, h("strong", {}, title), h("span", { class: "value" }, `${text(now)}${limited}`), h("span", { class: "minor" }, `at most ${text(most)} in ${period}`)),
    h("div", { class: "chart", "aria-hidden": "true" },
      h("div", { class: "scale" }, [highest, highest / 2, 0].map((it) => h("span", {}, text(it)))),
      svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" }, [0, HEIGHT / 2, HEIGHT].map((at) => rule(at, "grid")), limitLine, drawn),
      h("div", { class: "times" }, [from, (from + until) / 2, until].map((it) => h("span", {}, clock(it))))));
}

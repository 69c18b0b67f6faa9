// Values as people read them.
import { h } from "./dom.js";

export function bytes(count) {
  if (count === null || count === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  const number = at === 0 || count >= 100 ? Math.round(count) : count.toFixed(1).replace(/\.0$/, "");
  return `${number}\u00a0${units[at]}`;
}

const UNITS = [[60, 1, "s"], [3600, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "days"]];

export function span(seconds) {
  const [, size, unit] = UNITS.find(([limit]) => seconds < limit);
  return `${Math.floor(seconds / size)}\u00a0${unit}`;
}

export function ago(time) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  if (!Number.isFinite(seconds)) return "";
  return seconds < 10 ? "just now" : `${span(seconds)} ago`;
}

export const moment = (time) => time ? h("time", { datetime: time }, new Date(time).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })) : "";

export const when = (time) => time ? h("time", { datetime: time, title: new Date(time).toLocaleString() }, ago(time)) : "";

export const percent = (value) => (value === null || value === undefined ? "" : `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)}\u00a0%`);

export const milliseconds = (value) =>
  value === null || value === undefined ? "" : value < 1000 ? `${value}\u00a0ms` : value < 60000 ? `${(value / 1000).toFixed(1)}\u00a0s` : span(value / 1000);

export const count = (number, one, several = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : several}`;

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A sentence whose parts between backticks are code. */
export function prose(text) {
  return String(text).split("`").map((part, at) => at % 2 === 0 ? part : h("code", {}, part));
}

/** How something is: `good`, `busy`, `bad`, `warn`, or nothing for what has ended as it should. */
export const state = (text, kind = "") => h("span", { class: `state ${kind}` }, text);

export function machineState(row) {
  const exit = row.exit_code > 0 ? ` (${row.exit_code})` : "";
  const kind = row.running ? "good" : row.status === "missing" || row.status === "dead" ? "bad" : "";
  return state(row.status === "exited" ? `Stopped${exit}` : capital(row.status), kind);
}

/** The address of a published port in this browser. */
export const portAddress = (port) => `http:${"//"}${port.address.includes(":") ? `[${port.address}]` : port.address}:${port.host}/`;

/** Text without the codes by which programs colour a terminal. */
export const plain = (text) => text.replace(/\u001b(\[[0-9;?]*[A-Za-z]|\][^\u0007\u001b]*(\u0007|\u001b\\)|[()][A-Z0-9])/g, "").replace(/\r\n/g, "\n");

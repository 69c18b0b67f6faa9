// Calls of the server. A call that fails is thrown as its answer: `message`, `hint`, `code`. Warnings of others are shown.
import { showWarnings } from "./messages.js";

// Called again and again: a warning that was closed stays closed.
const POLLED = ["approvals list", "timeline", "checkpoint_diff", "jobs", "exec_poll", "workflow_status", "workflow_events", "worktree_list"];

async function refused(response) {
  if (response.status === 401) return { message: "The server no longer knows this page.", hint: "Open the address that `coracle ui` printed." };
  return { message: await response.text() };
}

async function answer(response) {
  if (!response.ok) throw await refused(response);
  return checked(await response.json());
}

function checked(json) {
  if (json.success === false && json.error !== undefined) throw json;
  return json;
}

// Whether a request changes nothing, so that it may be made once more.
const reads = (options) => options === undefined || options.method === "GET" || POLLED.includes(options.operation);

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    // A browser breaks off what is on its way when a network interface comes or goes, as those of containers do.
    response = reads(options) ? await fetch(path, options).catch(() => undefined) : undefined;
  }
  if (response === undefined) throw { message: "The server does not answer.", hint: "Start `coracle ui` again." };
  return response;
}

const request = async (path, options) => answer(await send(path, options));

const post = (operation, args, session, headers = {}) =>
  ({ method: "POST", operation, headers, body: JSON.stringify({ operation, arguments: args, session }) });

function warned(json, operation, args) {
  showWarnings(json.warnings || [], args.container || args.workflow, POLLED.includes(operation));
  return json;
}

export async function call(operation, args = {}, session) {
  return warned(await request("call", post(operation, args, session)), operation, args);
}

/** A session's tool. What it answers is the value; its warnings are beside it. */
export async function tool(operation, args = {}) {
  const { value } = await call(operation, args);
  return value;
}

/** The same as `call`, with each event of it as it comes. */
export async function follow(operation, args, onEvent) {
  const response = await send("call", post(operation, args, undefined, { accept: "application/x-ndjson" }));
  if (!response.ok) throw await refused(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let [text, result] = ["", null];
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (text + (value || "")).split("\n");
    text = lines.pop();
    for (const event of lines.map((line) => JSON.parse(line))) event.event === "result" ? result = event.result : onEvent(event);
    if (done) break;
  }
  if (result === null) throw { message: "The server broke off before the answer came.", hint: "The list shows what came of it." };
  return warned(checked(result), operation, args);
}

export const machines = (isChanged = false) => request("machines", { method: isChanged ? "POST" : "GET" });

/** The names of purposes, built in or configured. */
export const purposes = async () => (await request("purposes")).purposes;

export const usage = (name) => request(`usage/${name}`);

export const terminals = (name) => request(`terminals/${name}`);

const query = (path) => path === undefined ? "" : `?path=${encodeURIComponent(path)}`;

/** The entries of a directory; without a path, of that in which commands run. */
export const files = (name, path) => request(`files/${name}${query(path)}`);

export const fileAddress = (name, path) => `file/${name}${query(path)}`;

/** The first bytes of a file. */
export async function fileStart(name, path, limit) {
  const response = await send(fileAddress(name, path));
  if (!response.ok) throw await refused(response);
  if (response.headers.get("content-type") === "application/json") checked(await response.json());
  const reader = response.body.getReader();
  const pieces = [];
  let size = 0;
  while (size < limit) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    size += value.length;
  }
  await reader.cancel();
  return new Uint8Array(await new Blob(pieces).arrayBuffer()).subarray(0, limit);
}

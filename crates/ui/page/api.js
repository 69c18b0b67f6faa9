// Calls of the server. A call that fails is thrown as its answer: `message`, `hint`, `code`. Warnings of others are shown.
import { showWarnings } from "./dom.js";

// Called again and again: a warning that was closed stays closed.
const POLLED = ["jobs", "exec_poll"];

async function answer(response) {
  if (response.status === 401) throw { message: "The server no longer knows this page.", hint: "Open the address that `coracle ui` printed." };
  if (!response.ok) throw { message: await response.text() };
  const json = await response.json();
  if (json.success === false && json.error !== undefined) throw json;
  return json;
}

// Whether a request changes nothing, so that it may be made once more.
const reads = (options) => options === undefined || options.method === "GET" || POLLED.includes(options.operation);

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    // A browser breaks off what is on its way when a network interface comes or goes, as those of containers do.
    response = reads(options) ? await fetch(path, options).catch(() => undefined) : undefined;
  }
  if (response === undefined) throw { message: "The server does not answer.", hint: "Start `coracle ui` again." };
  return answer(response);
}

export async function call(operation, args = {}, session) {
  const json = await request("call", { method: "POST", operation, body: JSON.stringify({ operation, arguments: args, session }) });
  showWarnings(json.warnings || [], args.container || args.workflow, POLLED.includes(operation));
  return json;
}

export const machines = (anew = false) => request("machines", { method: anew ? "POST" : "GET" });

export const usage = (name) => request(`usage/${name}`);

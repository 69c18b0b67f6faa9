import { spawn } from "node:child_process";

import { ConnectionClosed, CoracleError } from "./errors.js";
import { findProgram } from "./program.js";

/** Milliseconds that the program gets to end its session. */
const LEAVING = 40_000;

const NEWLINE = 10;

/** Whether a call was not carried out. A command that ran was, however it ended. */
function isError(result) {
  const code = result.value?.exit_code ?? result.exitCode;
  return !result.success && (typeof code !== "number" || result.code === "cancelled");
}

/** A running `coracle serve`, which starts at the first request. */
export class Connection {
  constructor(options) {
    this._options = options;
    this._pending = new Map();
    this._next = 1;
    this._closed = false;
    this._child = null;
    this._parts = [];
  }

  /** Sends a request. `signal` withdraws it; `onEvent` hears what happens meanwhile. */
  request(body, { signal, onEvent } = {}) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      this._start();
      const id = this._next++;
      const abort = () => {
        this._write({ id: this._next++, cancel: id });
        reject(signal.reason);
      };
      signal?.addEventListener("abort", abort, { once: true });
      const forget = () => signal?.removeEventListener("abort", abort);
      this._pending.set(id, { resolve, reject, onEvent, forget });
      this._hold();
      this._write(onEvent ? { id, ...body, events: true } : { id, ...body });
    });
  }

  /** Ends the session: commands end, and containers that are not to outlive it are removed. */
  async close() {
    const child = this._child;
    this._closed = true;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.ref();
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.stdin.end();
    const timer = setTimeout(() => child.kill("SIGKILL"), LEAVING);
    await ended;
    clearTimeout(timer);
  }

  _start() {
    if (this._closed) throw new ConnectionClosed("the client is closed");
    if (this._child) return;
    const { program, cwd, env, ...options } = this._options;
    const words = [];
    for (const [name, word] of [["config", "config"], ["stateDir", "state-dir"], ["engine", "engine"], ["session", "session"]]) {
      if (options[name] !== undefined) words.push(`--${word}=${options[name]}`);
    }
    // A process group of its own: Ctrl-C at a terminal is for this program, which then ends the session.
    const settings = { cwd, env, detached: true, stdio: ["pipe", "pipe", "inherit"] };
    const child = spawn(program ?? findProgram(), [...words, "serve"], settings);
    this._child = child;
    child.once("error", (error) => this._end(`\`coracle\` cannot be started: ${error.message}`));
    child.once("exit", (code, signal) => this._end(`\`coracle serve\` has ended (${signal ?? `exit code ${code}`})`));
    // A write after the end shows in `exit`.
    child.stdin.on("error", () => {});
    child.stdout.on("data", (bytes) => this._read(bytes));
  }

  /** A program without a call under way may end; the pipe closes with it, and the session ends. */
  _hold() {
    const how = this._pending.size > 0 ? "ref" : "unref";
    this._child[how]();
    this._child.stdout[how]?.();
    this._child.stdin[how]?.();
  }

  _write(message) {
    if (this._child && !this._child.stdin.writableEnded) this._child.stdin.write(`${JSON.stringify(message)}\n`);
  }

  _read(bytes) {
    for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE)) {
      const line = Buffer.concat([...this._parts, bytes.subarray(0, end)]);
      this._parts = [];
      bytes = bytes.subarray(end + 1);
      this._receive(JSON.parse(line.toString("utf8")));
    }
    if (bytes.length > 0) this._parts.push(bytes);
  }

  _receive(message) {
    const pending = this._pending.get(message.id);
    if (!pending) return;
    if (message.event) {
      pending.onEvent?.(message.event);
      return;
    }
    this._pending.delete(message.id);
    this._hold();
    pending.forget();
    if (isError(message.result)) pending.reject(new CoracleError(message.result));
    else pending.resolve(message.result);
  }

  _end(why) {
    this._closed = true;
    for (const pending of this._pending.values()) {
      pending.forget();
      pending.reject(new ConnectionClosed(why));
    }
    this._pending.clear();
  }
}

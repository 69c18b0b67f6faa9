import { spawn } from "node:child_process";

import { ConnectionClosed, CoracleError } from "./errors.js";
import { findProgram } from "./program.js";

/** Milliseconds that the program gets to end its session. */
const LEAVING = 40_000;

/** The most bytes of a request. */
const MAX_BYTES = 8 << 20;

/** Events that a stream is given before it takes some. The command waits, and other calls go on. */
const WINDOW = 64;

/** Bytes of content that are sent before the program says that it has room for more. */
const ROOM = 4 << 20;

/** The most bytes of a frame of content. */
const FRAME = 1 << 18;

const NEWLINE = 10;

/** The first byte of a frame: `=`, the number of the request, a space, a number of bytes and a newline, and then the bytes. */
const EQUALS = 61;

/** Half of a surrogate pair: by this flag a whole pair is one character. */
const LONE_SURROGATE = /\p{Surrogate}/u;

/** A line, if the program takes it. */
function encoded(message) {
  const check = (key, value) => {
    if (!LONE_SURROGATE.test(key) && !(typeof value === "string" && LONE_SURROGATE.test(value))) return value;
    throw refused("a text has half of a surrogate pair, which is no character", "cut texts between characters");
  };
  let line;
  try {
    line = JSON.stringify(message, check);
  } catch (error) {
    if (error instanceof CoracleError) throw error;
    throw refused(`the fields cannot be sent as JSON: ${error.message}`, "give texts, numbers, lists and objects");
  }
  if (Buffer.byteLength(line) <= MAX_BYTES) return `${line}\n`;
  const hint = "write a file by `Container.write`, or copy it by `copy_in`";
  throw refused(`the request is larger than ${MAX_BYTES} bytes`, hint);
}

function refused(error, hint) {
  return new CoracleError({ success: false, code: "invalid_input", error, hint });
}

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
    /** Why no more requests are sent. */
    this._closed = null;
    this._child = null;
    this._hasEnded = false;
    this._parts = [];
    /** The frame that arrives. */
    this._frame = null;
  }

  /** Whether it was closed, or its program has ended. */
  get isClosed() {
    return this._closed !== null;
  }

  /**
   * Sends a request. `signal` withdraws it; `onEvent` hears what happens meanwhile, and withdraws it if it throws. With `flow`
   * the command waits until `flow.take()` was called for events. `content` is sent with it; `onFrame` gets content that comes.
   */
  request(body, { signal, onEvent, flow, content, onFrame } = {}) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const id = this._next++;
      // First: a request that cannot be sent gets no answer, and nothing may wait for one.
      const events = onEvent || onFrame ? { events: true, ...(flow && { window: WINDOW }) } : {};
      const bytes = { ...(onFrame && { binary: true }), ...(content && { input: true }) };
      const line = encoded({ id, ...body, ...events, ...bytes });
      if (flow) this._grantBy(flow, id);
      this._start();
      const abort = () => this._withdraw(id, signal.reason);
      signal?.addEventListener("abort", abort, { once: true });
      const forget = () => signal?.removeEventListener("abort", abort);
      const upload = content && { content, sent: 0, hasEnded: false };
      this._pending.set(id, { resolve, reject, onEvent, onFrame, upload, forget });
      this._hold();
      this._write(line);
      if (upload) this._send(id, upload, ROOM);
    });
  }

  /** Sends content, as far as the program has room. */
  _send(id, upload, room) {
    const { content } = upload;
    for (; room > 0 && upload.sent < content.length; ) {
      const piece = content.subarray(upload.sent, upload.sent + Math.min(room, FRAME));
      this._write(`=${id} ${piece.length}\n`);
      this._write(piece);
      upload.sent += piece.length;
      room -= piece.length;
    }
    if (upload.sent < content.length || upload.hasEnded) return;
    upload.hasEnded = true;
    this._write(`=${id} 0\n`);
  }

  _grantBy(flow, id) {
    let taken = 0;
    flow.take = () => {
      taken += 1;
      if (taken < WINDOW / 2) return;
      if (this._pending.has(id)) this._write(encoded({ id: this._next++, more: id, window: taken }));
      taken = 0;
    };
  }

  /** Cancels a call. Its answer, which still comes, is not waited for. */
  _withdraw(id, reason) {
    const pending = this._pending.get(id);
    if (!pending) return;
    pending.onEvent = pending.onFrame = undefined;
    pending.forget();
    this._write(encoded({ id: this._next++, cancel: id }));
    pending.reject(reason);
  }

  /** Ends the session: commands end, and containers that are not to outlive it are removed. */
  async close() {
    const child = this._child;
    this._closed ??= "the client is closed";
    if (!child || this._hasEnded) return;
    this._hold();
    const ended = new Promise((resolve) => child.once("close", resolve));
    child.stdin.end();
    const timer = setTimeout(() => child.kill("SIGKILL"), LEAVING);
    await ended;
    clearTimeout(timer);
  }

  _start() {
    if (this._closed !== null) throw new ConnectionClosed(this._closed, "make a new client");
    if (this._child) return;
    const { program, cwd, env, settings, ...options } = this._options;
    const words = [];
    for (const [name, word] of [["config", "config"], ["stateDir", "state-dir"], ["engine", "engine"], ["session", "session"]]) {
      if (options[name] !== undefined) words.push(`--${word}=${options[name]}`);
    }
    // A process group of its own: Ctrl-C at a terminal is for this program, which then ends the session.
    words.push("serve");
    if (settings !== undefined) words.push(`--settings=${JSON.stringify(settings)}`);
    const child = spawn(program ?? findProgram(), words, { cwd, env, detached: true, stdio: ["pipe", "pipe", "inherit"] });
    this._child = child;
    const ended = (why) => {
      this._hasEnded = true;
      this._end(why);
    };
    child.once("error", (error) => ended(`\`coracle\` cannot be started: ${error.message}`));
    // Not `exit`, which may come before the last answers are read.
    child.once("close", (code, signal) => ended(`\`coracle serve\` has ended (${signal ?? `exit code ${code}`})`));
    // A write after the end shows in `close`.
    child.stdin.on("error", () => {});
    child.stdout.on("data", (bytes) => this._read(bytes));
  }

  /** A program without a call or an end under way may end; the pipe closes with it, and the session ends. */
  _hold() {
    const how = this._pending.size > 0 || this.isClosed ? "ref" : "unref";
    this._child[how]();
    this._child.stdout[how]?.();
    this._child.stdin[how]?.();
  }

  _write(line) {
    if (this._child && !this._child.stdin.writableEnded) this._child.stdin.write(line);
  }

  _read(bytes) {
    for (;;) {
      if (this._frame) {
        bytes = this._readFrame(bytes);
        if (this._frame) return;
      }
      const end = bytes.indexOf(NEWLINE);
      if (end < 0) break;
      const line = Buffer.concat([...this._parts, bytes.subarray(0, end)]);
      this._parts = [];
      bytes = bytes.subarray(end + 1);
      if (line[0] === EQUALS) {
        const [id, left] = line.toString("latin1", 1).split(" ").map(Number);
        this._frame = { id, left, parts: [] };
        continue;
      }
      let message;
      try {
        message = JSON.parse(line.toString("utf8"));
      } catch (error) {
        this._child.stdout.removeAllListeners("data").resume();
        this._child.kill();
        return this._end(`an answer of \`coracle serve\` cannot be read: ${error.message}`);
      }
      this._receive(message);
    }
    if (bytes.length > 0) this._parts.push(bytes);
  }

  /** Takes what comes of a frame, and returns what follows it. */
  _readFrame(bytes) {
    const frame = this._frame;
    const part = bytes.subarray(0, frame.left);
    frame.parts.push(part);
    frame.left -= part.length;
    if (frame.left === 0) {
      this._frame = null;
      this._pending.get(frame.id)?.onFrame?.(frame.parts);
    }
    return bytes.subarray(part.length);
  }

  _receive(message) {
    const pending = this._pending.get(message.id);
    if (!pending) return;
    if (pending.upload && message.event?.event === "input") return this._send(message.id, pending.upload, message.event.room);
    if (message.event) {
      try {
        pending.onEvent?.(message.event);
      } catch (error) {
        this._withdraw(message.id, error);
      }
      return;
    }
    this._pending.delete(message.id);
    this._hold();
    pending.forget();
    if (isError(message.result)) pending.reject(new CoracleError(message.result));
    else pending.resolve(message.result);
  }

  _end(why) {
    this._closed ??= why;
    for (const pending of this._pending.values()) {
      pending.forget();
      pending.reject(new ConnectionClosed(why, "its standard error may say why; make a new client"));
    }
    this._pending.clear();
  }
}

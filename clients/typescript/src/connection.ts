import { spawn, type ChildProcessByStdio } from "node:child_process";
import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";

import type { ClientOptions } from "./client.js";
import { ConnectionClosed, CoracleError } from "./errors.js";
import { errorOf } from "./generated/errors.js";
import type { JsonObject } from "./names.js";
import { findProgram } from "./program.js";

/** Milliseconds that the program gets to end its session. */
const LEAVING = 40_000;

/** The most bytes of a request. */
const MAX_BYTES = 8 << 20;

/** Events that a stream holds before it takes some. Then the command waits, and other calls go on. */
export const WINDOW = 64;

/** Bytes of content that are sent before the program says that it has room for more. */
const ROOM = 4 << 20;

/** The most bytes of a frame of content. */
const FRAME = 1 << 18;

const NEWLINE = 10;

/** The first byte of a frame: `=`, the number of the request, a space, a number of bytes and a newline, and then the bytes. */
const EQUALS = 61;

/** Half of a surrogate pair: by this flag a whole pair is one character. */
const LONE_SURROGATE = /\p{Surrogate}/u;

/** Says that an event was taken. The connection sets what it does. */
export interface Flow {
  take: () => void;
}

export interface RequestOptions {
  /** Withdraws the request. */
  signal?: AbortSignal | undefined;
  /** Receives the events before the answer, and withdraws the request if it throws. */
  onEvent?: ((event: JsonObject) => void) | undefined;
  /** With it, the command waits until events were taken. */
  flow?: Flow | undefined;
  /** Is sent with the request. */
  content?: Buffer | undefined;
  /** Receives content that comes, in pieces. */
  onFrame?: ((frame: Buffer[]) => void) | undefined;
}

/** Content on its way to the program. */
interface Upload {
  content: Buffer;
  sent: number;
  hasEnded: boolean;
}

/** Content that arrives. */
interface Frame {
  id: number;
  left: number;
  parts: Buffer[];
}

/** A line of the program. */
interface Message {
  id: number;
  event?: JsonObject;
  result: JsonObject;
}

interface Pending {
  resolve: (answer: JsonObject) => void;
  reject: (reason: unknown) => void;
  onEvent: RequestOptions["onEvent"];
  onFrame: RequestOptions["onFrame"];
  upload: Upload | undefined;
  forget: () => void;
}

/** A line, if the program takes it. */
function encoded(message: object): string {
  const check = (key: string, value: unknown) => {
    if (!LONE_SURROGATE.test(key) && !(typeof value === "string" && LONE_SURROGATE.test(value))) return value;
    throw refused("a text has half of a surrogate pair, which is no character", "cut texts between characters");
  };
  let line: string;
  try {
    line = JSON.stringify(message, check);
  } catch (error) {
    if (error instanceof CoracleError) throw error;
    throw refused(`the fields cannot be sent as JSON: ${(error as Error).message}`, "give texts, numbers, lists and objects");
  }
  if (Buffer.byteLength(line) <= MAX_BYTES) return `${line}\n`;
  const hint = "write a file by `Container.write`, or copy it by `copyIn`";
  throw refused(`the request is larger than ${MAX_BYTES} bytes`, hint);
}

function refused(error: string, hint: string): CoracleError {
  return errorOf({ success: false, code: "invalid_input", error, hint });
}

/** Whether a call was not carried out. A command that ran was, however it ended. */
function isError({ success, code, value, exitCode }: JsonObject): boolean {
  const ended = (value as JsonObject | null | undefined)?.exit_code ?? exitCode;
  return !success && (typeof ended !== "number" || code === "cancelled");
}

/** A running `coracle serve`, which starts at the first request. */
export class Connection {
  #options: ClientOptions;
  #pending = new Map<number, Pending>();
  #next = 1;
  /** Why no more requests are sent. */
  #closed: string | null = null;
  #child: ChildProcessByStdio<Writable, Readable, null> | null = null;
  #hasEnded = false;
  #parts: Buffer[] = [];
  /** The frame that arrives. */
  #frame: Frame | null = null;

  constructor(options: ClientOptions) {
    this.#options = options;
  }

  /** Whether it was closed, or its program has ended. */
  get isClosed(): boolean {
    return this.#closed !== null;
  }

  /** Sends a request. */
  request(body: object, { signal, onEvent, flow, content, onFrame }: RequestOptions = {}): Promise<JsonObject> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const id = this.#next++;
      // First: a request that cannot be sent gets no answer, and nothing may wait for one.
      const events = onEvent || onFrame ? { events: true, ...(flow && { window: WINDOW }) } : {};
      const bytes = { ...(onFrame && { binary: true }), ...(content && { input: true }) };
      const line = encoded({ id, ...body, ...events, ...bytes });
      if (flow) this.#grantBy(flow, id);
      this.#start();
      const abort = () => this.#withdraw(id, signal?.reason);
      signal?.addEventListener("abort", abort, { once: true });
      const forget = () => signal?.removeEventListener("abort", abort);
      const upload = content && { content, sent: 0, hasEnded: false };
      this.#pending.set(id, { resolve, reject, onEvent, onFrame, upload, forget });
      this.#hold();
      this.#write(line);
      if (upload) this.#send(id, upload, ROOM);
    });
  }

  /** Sends content, as far as the program has room. */
  #send(id: number, upload: Upload, room: number): void {
    const { content } = upload;
    for (; room > 0 && upload.sent < content.length; ) {
      const piece = content.subarray(upload.sent, upload.sent + Math.min(room, FRAME));
      this.#write(`=${id} ${piece.length}\n`);
      this.#write(piece);
      upload.sent += piece.length;
      room -= piece.length;
    }
    if (upload.sent < content.length || upload.hasEnded) return;
    upload.hasEnded = true;
    this.#write(`=${id} 0\n`);
  }

  #grantBy(flow: Flow, id: number): void {
    let taken = 0;
    flow.take = () => {
      taken += 1;
      if (taken < WINDOW / 2) return;
      if (this.#pending.has(id)) this.#write(encoded({ id: this.#next++, more: id, window: taken }));
      taken = 0;
    };
  }

  /** Cancels a call. Its answer, which still comes, is not waited for. */
  #withdraw(id: number, reason: unknown): void {
    const pending = this.#pending.get(id);
    if (!pending) return;
    pending.onEvent = pending.onFrame = undefined;
    pending.forget();
    this.#write(encoded({ id: this.#next++, cancel: id }));
    pending.reject(reason);
  }

  /** Ends the session: commands end, and containers that are not to outlive it are removed. */
  async close(): Promise<void> {
    const child = this.#child;
    this.#closed ??= "the client is closed";
    if (!child || this.#hasEnded) return;
    this.#hold();
    const ended = new Promise((resolve) => child.once("close", resolve));
    child.stdin.end();
    const timer = setTimeout(() => child.kill("SIGKILL"), LEAVING);
    await ended;
    clearTimeout(timer);
  }

  #start(): void {
    if (this.#closed !== null) throw new ConnectionClosed(this.#closed, "make a new client");
    if (this.#child) return;
    const { program, cwd, env, settings, config, stateDir, engine, session } = this.#options;
    const given = { config, "state-dir": stateDir, engine, session };
    const words = Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`--${name}=${value}`]));
    words.push("serve");
    if (settings !== undefined) words.push(`--settings=${JSON.stringify(settings)}`);
    // A process group of its own: Ctrl-C at a terminal is for this program, which then ends the session.
    const child = spawn(program ?? findProgram(), words, { cwd, env, detached: true, stdio: ["pipe", "pipe", "inherit"] });
    this.#child = child;
    const ended = (why: string) => {
      this.#hasEnded = true;
      this.#end(why);
    };
    child.once("error", (error) => ended(`\`coracle\` cannot be started: ${error.message}`));
    // Not `exit`, which may come before the last answers are read.
    child.once("close", (code, signal) => ended(`\`coracle serve\` has ended (${signal ?? `exit code ${code}`})`));
    // A write after the end shows in `close`.
    child.stdin.on("error", () => {});
    child.stdout.on("data", (bytes) => this.#read(bytes));
  }

  /** A program without a call or an end under way may end; the pipe closes with it, and the session ends. */
  #hold(): void {
    const how = this.#pending.size > 0 || this.isClosed ? "ref" : "unref";
    this.#child?.[how]();
    for (const pipe of [this.#child?.stdout, this.#child?.stdin]) (pipe as Socket | undefined)?.[how]?.();
  }

  #write(line: string | Uint8Array): void {
    if (this.#child && !this.#child.stdin.writableEnded) this.#child.stdin.write(line);
  }

  #read(bytes: Buffer): void {
    for (;;) {
      if (this.#frame) {
        bytes = this.#readFrame(this.#frame, bytes);
        if (this.#frame) return;
      }
      const end = bytes.indexOf(NEWLINE);
      if (end < 0) break;
      const line = Buffer.concat([...this.#parts, bytes.subarray(0, end)]);
      this.#parts = [];
      bytes = bytes.subarray(end + 1);
      if (line[0] === EQUALS) {
        const [id = 0, left = 0] = line.toString("latin1", 1).split(" ").map(Number);
        this.#frame = { id, left, parts: [] };
        continue;
      }
      let message: Message;
      try {
        message = JSON.parse(line.toString("utf8"));
      } catch (error) {
        this.#child?.stdout.removeAllListeners("data").resume();
        this.#child?.kill();
        return this.#end(`an answer of \`coracle serve\` cannot be read: ${(error as Error).message}`);
      }
      this.#receive(message);
    }
    if (bytes.length > 0) this.#parts.push(bytes);
  }

  /** Takes what comes of a frame, and returns what follows it. */
  #readFrame(frame: Frame, bytes: Buffer): Buffer {
    const part = bytes.subarray(0, frame.left);
    frame.parts.push(part);
    frame.left -= part.length;
    if (frame.left === 0) {
      this.#frame = null;
      this.#pending.get(frame.id)?.onFrame?.(frame.parts);
    }
    return bytes.subarray(part.length);
  }

  #receive({ id, event, result }: Message): void {
    const pending = this.#pending.get(id);
    if (!pending) return;
    if (pending.upload && event?.event === "input") return this.#send(id, pending.upload, event.room as number);
    if (event) {
      try {
        pending.onEvent?.(event);
      } catch (error) {
        this.#withdraw(id, error);
      }
      return;
    }
    this.#pending.delete(id);
    this.#hold();
    pending.forget();
    if (isError(result)) pending.reject(errorOf(result));
    else pending.resolve(result);
  }

  #end(why: string): void {
    this.#closed ??= why;
    for (const pending of this.#pending.values()) {
      pending.forget();
      pending.reject(new ConnectionClosed(why, "its standard error may say why; make a new client"));
    }
    this.#pending.clear();
  }
}

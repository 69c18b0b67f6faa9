/// <reference lib="esnext.disposable" preserve="true" />
import { Connection, WINDOW, type Flow, type RequestOptions } from "./connection.js";
import { CommandFailed, ConnectionClosed } from "./errors.js";
import {
  ContainerOperations,
  EVENT_MAPS,
  MAPS,
  Operations,
  type CallEvent,
  type CreateRequest,
  type CreateResult,
  type ExecBackgroundRequest,
  type ExecCancelResult,
  type ExecPollResult,
  type ExecRequest,
  type ExecResult,
  type ForkRequest,
  type JobReadRequest,
  type JobReadResult,
  type JobWaitRequest,
  type JobWaitResult,
} from "./generated/operations.js";
import { fromWire, toWire, type JsonObject } from "./names.js";

export interface CallOptions {
  /** Withdraws the call. */
  signal?: AbortSignal | undefined;
  /** Receives the events of the call before its answer. What it throws ends the call. */
  onEvent?: ((event: CallEvent) => void) | undefined;
}

export interface ClientOptions {
  /** The program `coracle`. Without it CORACLE_BIN, the one in this package, or that in PATH. */
  program?: string | undefined;
  /** Name of the session, whose containers another client of that name sees too. */
  session?: string | undefined;
  engine?: string | undefined;
  /** The file of the configuration. */
  config?: string | undefined;
  /** The directory of records. */
  stateDir?: string | undefined;
  /** The working directory, which `create` mounts. */
  cwd?: string | undefined;
  /** All variables of the program. Without it those of this process. */
  env?: NodeJS.ProcessEnv | undefined;
  /**
   * Keys of the configuration over those of its file, such as `{ max_containers: 100 }`, `{ workspace: { allow_roots: ["/data"] } }`
   * or `{ log: { level: "off" } }`.
   */
  settings?: Record<string, unknown> | undefined;
}

/** A connection to `coracle serve`, with all operations and tools as methods. It starts at the first call. */
export class Client extends Operations {
  /** @internal */
  readonly _connection: Connection;

  constructor(options: ClientOptions = {}) {
    super();
    this._connection = new Connection(options);
  }

  /** Calls an operation by its name on the wire, with the fields and the answer of the wire. */
  async call(operation: string, fields: object = {}, options: CallOptions = {}): Promise<JsonObject> {
    return this._connection.request({ call: { ...fields, operation } }, forConnection(options));
  }

  /** Calls a tool by its name on the wire, with the fields and the answer of the wire. */
  async tool(name: string, fields: object = {}, options: CallOptions = {}): Promise<JsonObject> {
    return this._connection.request({ tool: name, arguments: fields }, forConnection(options));
  }

  /** Ends the session: containers that are not to outlive it are removed. */
  close(): Promise<void> {
    return this._connection.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal */
  override async _call<R>(name: string, request: object = {}, options: CallOptions & { flow?: Flow } = {}): Promise<R> {
    const call = { ...toWire(request, MAPS[name]?.request), operation: name };
    return fromWire(await this._connection.request({ call }, forConnection(options)), MAPS[name]?.result) as R;
  }

  /** @internal */
  override async _tool<R>(name: string, request: object = {}, options: CallOptions = {}): Promise<R> {
    const call = { tool: name, arguments: toWire(request, MAPS[name]?.request) };
    return fromWire(await this._connection.request(call, forConnection(options)), MAPS[name]?.result) as R;
  }
}

function forConnection({ onEvent, ...options }: CallOptions & { flow?: Flow }): RequestOptions {
  return { ...options, onEvent: onEvent && ((event) => onEvent(fromWire(event, EVENT_MAPS) as CallEvent)) };
}

let shared: Client | undefined;

/** The client of containers that name none. It ends with the program; if `coracle serve` ended, it is a new one. */
export function defaultClient(): Client {
  if (!shared || shared._connection.isClosed) shared = new Client();
  return shared;
}

export interface CreateOptions extends CallOptions {
  client?: Client | undefined;
}

type Command = string | string[];
type Options<Request> = Omit<Request, "container" | "command" | "jobId">;

/**
 * A container. `create` makes one; `destroy`, or the end of `await using`, removes it. That end leaves one that is
 * persistent, or that `ifExists: "reuse"` found.
 */
export class Container extends ContainerOperations {
  readonly client: Client;
  override readonly name: string;
  /** What `create` answered; null for a container that was there. */
  readonly created: CreateResult | null;

  private constructor(client: Client, name: string, created: CreateResult | null) {
    super();
    this.client = client;
    this.name = name;
    this.created = created;
  }

  static async create(request: CreateRequest = {}, { client = defaultClient(), ...options }: CreateOptions = {}): Promise<Container> {
    const created = await client.create(request, options);
    return new Container(client, created.container, created);
  }

  /** A container that is there; the end of `await using` leaves it. */
  static attach(name: string, client: Client = defaultClient()): Container {
    return new Container(client, name, null);
  }

  /**
   * Makes a container, gives it to `work`, and removes it. What `work` throws is thrown; if the removal fails too, its error
   * is the `cause`, or both are in an `AggregateError` if there is a cause already.
   */
  static async using<T>(request: CreateRequest, work: (c: Container) => Promise<T>, options?: CreateOptions): Promise<T> {
    const container = await Container.create(request, options);
    let result: T;
    try {
      result = await work(container);
    } catch (error) {
      try {
        await container[Symbol.asyncDispose]();
      } catch (removal) {
        if (!(error instanceof Error) || error.cause !== undefined) {
          throw new AggregateError([error, removal], "the work failed, and the container could not be removed");
        }
        error.cause = removal;
      }
      throw error;
    }
    await container[Symbol.asyncDispose]();
    return result;
  }

  /** Removes it, unless it is to stay. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.created && !this.created.persistent && !this.created.reused) await this.destroy();
  }

  /** Runs a command and waits for it. */
  exec(command: Command, request: Options<ExecRequest> = {}, options?: CallOptions): Promise<ExecResult> {
    return this._call("exec", { ...request, command, container: this.name }, options);
  }

  /** The same; a command that does not end with 0 is a `CommandFailed`. */
  async run(command: Command, request?: Options<ExecRequest>, options?: CallOptions): Promise<ExecResult> {
    const result = await this.exec(command, request, options);
    if (result.exitCode !== 0) throw new CommandFailed(result);
    return result;
  }

  /** Runs a command, and gives what it prints while it runs. */
  stream(command: Command, request: Options<ExecRequest> = {}, options?: CallOptions): OutputStream {
    return new OutputStream(this.client, { ...request, command, container: this.name }, options);
  }

  /** Starts a command as a job. */
  async start(command: Command, request: Options<ExecBackgroundRequest> = {}, options?: CallOptions): Promise<Job> {
    const { jobId } = await this.execBackground({ ...request, command }, options);
    return new Job(this, jobId, 0);
  }

  /** A job by its id. */
  job(id: string): Job {
    return new Job(this, id);
  }

  /** Makes a container from this one as its files are now. */
  async forkContainer(request: Options<ForkRequest> = {}, options?: CallOptions): Promise<Container> {
    const created = await this.fork(request, options);
    return new Container(this.client, created.container, created);
  }

  /** The bytes of a file: below the working directory, or one that the user inside may read. */
  async read(path: string): Promise<Buffer> {
    const parts: Buffer[] = [];
    const flow: Flow = { take: () => {} };
    const onFrame = (frame: Buffer[]) => {
      parts.push(...frame);
      flow.take();
    };
    const request = { tool: "download", arguments: { container: this.name, path } };
    const { value } = await this.client._connection.request(request, { flow, onFrame, onEvent: () => flow.take() });
    const { size_bytes: size } = value as { size_bytes: number };
    const content = Buffer.concat(parts);
    if (content.length === size) return content;
    throw new ConnectionClosed(`of ${size} bytes ${content.length} arrived`, "read the file again");
  }

  async readText(path: string): Promise<string> {
    return (await this.read(path)).toString("utf8");
  }

  /** Writes a file in place of one that is there: below the working directory, or where the user inside may write. */
  async write(path: string, content: string | Uint8Array, { executable }: { executable?: boolean } = {}): Promise<void> {
    const request = { tool: "upload", arguments: { container: this.name, path, executable } };
    const bytes = typeof content === "string" ? Buffer.from(content) : Buffer.from(content);
    await this.client._connection.request(request, { content: bytes });
  }

  /** Replaces a text in a file; it has to be there exactly once, unless `replaceAll`. */
  async edit(path: string, old: string, replacement: string, { replaceAll }: { replaceAll?: boolean } = {}): Promise<void> {
    await this.readFile({ path, limit: 1 });
    await this.editFile({ path, oldString: old, newString: replacement, ...(replaceAll !== undefined && { replaceAll }) });
  }

  /** @internal */
  override _call<R>(operation: string, request?: object, options?: CallOptions): Promise<R> {
    return this.client._call(operation, request, options);
  }

  /** @internal */
  override _tool<R>(name: string, request?: object, options?: CallOptions): Promise<R> {
    return this.client._tool(name, request, options);
  }
}

/** A command that runs in the background of a container. */
export class Job {
  readonly container: Container;
  readonly id: string;
  #offset: number | undefined;

  constructor(container: Container, id: string, offset?: number) {
    this.container = container;
    this.id = id;
    this.#offset = offset;
  }

  /**
   * Waits until it ends, or for what the request says. Without `offset`, output is looked at from where the last wait ended:
   * of a job that was started here from its begin.
   */
  async wait(request: Options<JobWaitRequest> = {}, options?: CallOptions): Promise<JobWaitResult> {
    const offset = this.#offset === undefined ? {} : { offset: this.#offset };
    const result = await this.container.jobWait({ ...offset, ...request, jobId: this.id }, options);
    this.#offset = result.nextOffset;
    return result;
  }

  poll(options?: CallOptions): Promise<ExecPollResult> {
    return this.container.execPoll({ jobId: this.id }, options);
  }

  read(request: Options<JobReadRequest> = {}, options?: CallOptions): Promise<JobReadResult> {
    return this.container.jobRead({ ...request, jobId: this.id }, options);
  }

  cancel(options?: CallOptions): Promise<ExecCancelResult> {
    return this.container.execCancel({ jobId: this.id }, options);
  }
}

/** A piece of what a command prints. */
export interface Chunk {
  stream: "stdout" | "stderr";
  data: Buffer;
  /** Bytes of the stream before it. */
  offset: number;
}

/**
 * What a command prints while it runs. To leave the loop early ends the command. A command whose chunks are not taken waits after a
 * few MiB.
 */
export class OutputStream implements AsyncIterable<Chunk> {
  #chunks: Chunk[] = [];
  #flow: Flow = { take: () => {} };
  #abort = new AbortController();
  /** `iterated`: the loop takes the chunks. `discarded`: the result alone was wanted. */
  #state: "new" | "iterated" | "discarded" = "new";
  #hasEnded = false;
  #wake: (() => void) | undefined;
  #result: Promise<ExecResult>;

  /** @internal */
  constructor(client: Client, request: object, { signal, onEvent: listener }: CallOptions = {}) {
    const abort = () => this.#abort.abort(signal?.reason);
    // A signal that is aborted fires no more.
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
    const onEvent = (event: CallEvent) => {
      listener?.(event);
      if (event.event === "progress" || event.event === "step" || this.#state === "discarded") return this.#flow.take();
      if (this.#chunks.length >= WINDOW) throw new Error(`more than ${WINDOW} events wait`);
      const data = event.base64 === undefined ? Buffer.from(event.data ?? "", "utf8") : Buffer.from(event.base64, "base64");
      this.#chunks.push({ stream: event.event, data, offset: event.offset });
      this.#wake?.();
    };
    this.#result = client._call("exec", request, { onEvent, signal: this.#abort.signal, flow: this.#flow });
    const ended = () => {
      this.#hasEnded = true;
      signal?.removeEventListener("abort", abort);
      this.#wake?.();
    };
    this.#result.then(ended, ended);
  }

  /** How the command ended. If it is read before the first chunk, the chunks are discarded: the loop would get none. */
  get result(): Promise<ExecResult> {
    if (this.#state === "new") {
      this.#state = "discarded";
      for (; this.#chunks.length > 0; this.#chunks.pop()) this.#flow.take();
    }
    return this.#result;
  }

  async *[Symbol.asyncIterator](): AsyncIterator<Chunk> {
    if (this.#state === "discarded") throw new Error("the chunks were discarded: read `result` after the loop");
    this.#state = "iterated";
    try {
      for (;;) {
        for (let chunk; (chunk = this.#chunks.shift()); ) {
          this.#flow.take();
          yield chunk;
        }
        if (this.#hasEnded) break;
        await new Promise<void>((resolve) => (this.#wake = resolve));
      }
      await this.#result;
    } finally {
      this.close();
    }
  }

  /** Ends the command, if it runs still. */
  close(): void {
    if (!this.#hasEnded) this.#abort.abort(new Error("the stream was closed"));
  }
}

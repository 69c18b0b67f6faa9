import { Connection } from "./connection.js";
import { CommandFailed, ConnectionClosed } from "./errors.js";
import { ContainerOperations, Operations } from "./operations.js";

/** Node 18 has no such symbol; later ones call it at the end of `await using`. */
const dispose = Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose");

/** A connection to `coracle serve`, with all operations and tools as methods. */
export class Client extends Operations {
  constructor(options = {}) {
    super();
    this._connection = new Connection(options);
  }

  call(operation, request = {}, options) {
    return this._call(operation, request, options);
  }

  tool(name, request = {}, options) {
    return this._tool(name, request, options);
  }

  close() {
    return this._connection.close();
  }

  [dispose]() {
    return this.close();
  }

  _call(operation, request, options) {
    return this._connection.request({ call: { ...request, operation } }, options);
  }

  _tool(name, request, options) {
    return this._connection.request({ tool: name, arguments: request ?? {} }, options);
  }
}

let shared;

/** The client of containers that name none. It ends with the program; if `coracle serve` ended, it is a new one. */
export function defaultClient() {
  if (!shared || shared._connection.isClosed) shared = new Client();
  return shared;
}

/** A container. `create` makes one; `destroy`, or the end of `await using`, removes it. */
export class Container extends ContainerOperations {
  constructor(client, name, created) {
    super();
    this.client = client;
    this.name = name;
    this.created = created ?? null;
    /** Whether the end of `await using` removes it: not one that is to stay, or that was there. */
    this._isOwn = created !== undefined && !created.persistent && !created.reused;
  }

  static async create(request = {}, { client = defaultClient(), ...options } = {}) {
    const created = await client.create(request, options);
    return new Container(client, created.container, created);
  }

  /** A container that is there; the end of `await using` leaves it. */
  static attach(name, client = defaultClient()) {
    return new Container(client, name);
  }

  /** Makes a container, gives it to `work`, and removes it. */
  static async using(request, work, options) {
    const container = await Container.create(request, options);
    let result;
    try {
      result = await work(container);
    } catch (error) {
      // What went wrong in the work is what its caller has to know.
      await container[dispose]().catch((failed) => {
        if (error instanceof Error) error.cause ??= failed;
      });
      throw error;
    }
    await container[dispose]();
    return result;
  }

  async [dispose]() {
    if (this._isOwn) await this.destroy();
  }

  exec(command, request = {}, options) {
    return super.exec({ ...request, command }, options);
  }

  async run(command, request = {}, options) {
    const result = await this.exec(command, request, options);
    if (result.exit_code !== 0) throw new CommandFailed(result);
    return result;
  }

  stream(command, request = {}, options) {
    return new OutputStream(this.client, { ...request, command, container: this.name }, options);
  }

  async start(command, request = {}, options) {
    const { job_id } = await this.exec_background({ ...request, command }, options);
    return new Job(this, job_id, 0);
  }

  job(id) {
    return new Job(this, id);
  }

  async forkContainer(request = {}, options) {
    const created = await super.fork(request, options);
    return new Container(this.client, created.container, created);
  }

  async read(path) {
    const parts = [];
    const flow = {};
    const onFrame = (frame) => {
      parts.push(...frame);
      flow.take();
    };
    const onEvent = () => flow.take();
    const request = { tool: "download", arguments: { container: this.name, path } };
    const { value } = await this.client._connection.request(request, { flow, onFrame, onEvent });
    const content = Buffer.concat(parts);
    if (content.length === value.size_bytes) return content;
    throw new ConnectionClosed(`of ${value.size_bytes} bytes ${content.length} arrived`, "read the file again");
  }

  async readText(path) {
    return (await this.read(path)).toString("utf8");
  }

  async write(path, content, { executable } = {}) {
    const request = { tool: "upload", arguments: { container: this.name, path, executable } };
    await this.client._connection.request(request, { content: Buffer.from(content) });
  }

  async edit(path, old, replacement, { replaceAll } = {}) {
    await this.read_file({ path, limit: 1 });
    await this.edit_file({ path, old_string: old, new_string: replacement, replace_all: replaceAll });
  }

  _call(operation, request, options) {
    return this.client._call(operation, request, options);
  }

  _tool(name, request, options) {
    return this.client._tool(name, request, options);
  }
}

/** A command that runs in the background of a container. */
export class Job {
  constructor(container, id, offset) {
    this.container = container;
    this.id = id;
    this._offset = offset;
  }

  async wait(request = {}, options) {
    const result = await this.container.job_wait({ offset: this._offset, ...request, job_id: this.id }, options);
    this._offset = result.next_offset;
    return result;
  }

  poll(options) {
    return this.container.exec_poll({ job_id: this.id }, options);
  }

  read(request = {}, options) {
    return this.container.job_read({ ...request, job_id: this.id }, options);
  }

  cancel(options) {
    return this.container.exec_cancel({ job_id: this.id }, options);
  }
}

/** What a command prints while it runs; `result` has how it ended. To leave the loop early ends the command. */
export class OutputStream {
  constructor(client, request, { signal, onEvent: listener } = {}) {
    this._chunks = [];
    /** Of these, those that the program still waits for. */
    this._owed = 0;
    this._isIterated = false;
    this._isAwaited = false;
    this._flow = {};
    this._abort = new AbortController();
    const abort = () => this._abort.abort(signal.reason);
    // A signal that is aborted fires no more.
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
    const onEvent = (event) => {
      listener?.(event);
      if (event.event !== "stdout" && event.event !== "stderr") return this._flow.take();
      const data = event.base64 === undefined ? Buffer.from(event.data, "utf8") : Buffer.from(event.base64, "base64");
      this._chunks.push({ stream: event.event, data, offset: event.offset });
      this._owed += 1;
      if (this._isAwaited) this._takeOwed(this._owed);
      this._wake?.();
    };
    this._result = client._call("exec", request, { onEvent, signal: this._abort.signal, flow: this._flow });
    const ended = () => {
      this._ended = true;
      signal?.removeEventListener("abort", abort);
      this._wake?.();
    };
    this._result.then(ended, ended);
  }

  /** How the command ended. Whoever awaits it before the first chunk gets all output in memory. */
  get result() {
    if (!this._isIterated && !this._isAwaited) {
      this._isAwaited = true;
      this._takeOwed(this._owed);
    }
    return this._result;
  }

  _takeOwed(count) {
    for (; count > 0 && this._owed > 0; count--) {
      this._owed -= 1;
      this._flow.take();
    }
  }

  async *[Symbol.asyncIterator]() {
    this._isIterated = true;
    try {
      for (;;) {
        while (this._chunks.length > 0) {
          const chunk = this._chunks.shift();
          this._takeOwed(1);
          yield chunk;
        }
        if (this._ended) break;
        await new Promise((resolve) => (this._wake = resolve));
      }
      await this._result;
    } finally {
      this.close();
    }
  }

  /** Ends the command, if it runs still. */
  close() {
    if (!this._ended) this._abort.abort(new Error("the stream was closed"));
  }
}

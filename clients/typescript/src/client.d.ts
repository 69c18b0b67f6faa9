/// <reference lib="esnext.disposable" />
import type {
  CreateRequest,
  CreateResult,
  ExecBackgroundRequest,
  ExecCancelResult,
  ExecPollResult,
  ExecRequest,
  ExecResult,
  ForkRequest,
  JobReadRequest,
  JobReadResult,
  JobWaitRequest,
  JobWaitResult,
} from "./operations.js";
import { ContainerOperations, Operations } from "./operations.js";

/** Something that happens while a call is carried out. */
export interface CallEvent {
  event: "stdout" | "stderr" | "progress" | "step";
  data?: string;
  base64?: string;
  offset?: number;
  message?: string;
  done?: number;
  total?: number | null;
  step?: Record<string, unknown>;
}

export interface CallOptions {
  /** Withdraws the call. */
  signal?: AbortSignal;
  /** Hears what happens until the answer is there. What it throws ends the call. */
  onEvent?: (event: CallEvent) => void;
}

export interface ClientOptions {
  /** The program `coracle`. Without it CORACLE_BIN, the one in this package, or that in PATH. */
  program?: string;
  /** Name of the session, whose containers another client of that name sees too. */
  session?: string;
  engine?: "auto" | "docker" | "podman" | "embedded";
  /** The file of the configuration. */
  config?: string;
  /** The directory of records. */
  stateDir?: string;
  /** The working directory, which `create` mounts. */
  cwd?: string;
  /** All variables of the program. Without it those of this process. */
  env?: Record<string, string>;
  /**
   * Keys of the configuration over those of its file, such as `{ max_containers: 100 }`, `{ workspace: { allow_roots: ["/data"] } }`
   * or `{ log: { level: "off" } }`.
   */
  settings?: Record<string, unknown>;
}

/** A connection to `coracle serve`, which starts at the first call. */
export class Client extends Operations {
  constructor(options?: ClientOptions);
  /** Carries out an operation by its name. */
  call(operation: string, request?: Record<string, unknown>, options?: CallOptions): Promise<Record<string, unknown>>;
  /** Calls a tool by its name. */
  tool(name: string, request?: Record<string, unknown>, options?: CallOptions): Promise<Record<string, unknown>>;
  /** Ends the session: containers that are not to outlive it are removed. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The client of containers that name none. It ends with the program; if `coracle serve` ended, it is a new one. */
export function defaultClient(): Client;

export interface CreateOptions extends CallOptions {
  client?: Client;
}

type Options<Request> = Omit<Request, "container" | "command">;

/**
 * A container. `create` makes one; `destroy`, or the end of `await using`, removes it. That end leaves one that is
 * persistent, or that `if_exists: "reuse"` found.
 */
export class Container extends (ContainerOperations as new () => Omit<ContainerOperations, "exec">) {
  private constructor();
  readonly client: Client;
  readonly name: string;
  /** What `create` answered; null for a container that was there. */
  readonly created: CreateResult | null;
  static create(request?: CreateRequest, options?: CreateOptions): Promise<Container>;
  /** A container that is there; the end of `await using` leaves it. */
  static attach(name: string, client?: Client): Container;
  /** Makes a container, gives it to `work`, and removes it. What `work` throws is thrown, also if the removal fails. */
  static using<T>(request: CreateRequest, work: (c: Container) => Promise<T>, options?: CreateOptions): Promise<T>;
  /** Removes it, unless it is to stay. */
  [Symbol.asyncDispose](): Promise<void>;
  /** Runs a command and waits for it. */
  exec(command: string | string[], request?: Options<ExecRequest>, options?: CallOptions): Promise<ExecResult>;
  /** The same; a command that does not end with 0 is a `CommandFailed`. */
  run(command: string | string[], request?: Options<ExecRequest>, options?: CallOptions): Promise<ExecResult>;
  /** Runs a command, and gives what it prints while it runs. */
  stream(command: string | string[], request?: Options<ExecRequest>, options?: CallOptions): OutputStream;
  /** Starts a command as a job. */
  start(command: string | string[], request?: Options<ExecBackgroundRequest>, options?: CallOptions): Promise<Job>;
  /** A job by its id. */
  job(id: string): Job;
  /** Makes a container from this one as its files are now. */
  forkContainer(request?: Omit<ForkRequest, "container">, options?: CallOptions): Promise<Container>;
  /** The bytes of a file: below the working directory, or one that the user inside may read. */
  read(path: string): Promise<Buffer>;
  readText(path: string): Promise<string>;
  /** Writes a file in place of one that is there: below the working directory, or where the user inside may write. */
  write(path: string, content: string | Uint8Array, options?: { executable?: boolean }): Promise<void>;
  /** Replaces a text in a file; it has to be there exactly once, unless `replaceAll`. */
  edit(path: string, old: string, replacement: string, options?: { replaceAll?: boolean }): Promise<void>;
}

/** A command that runs in the background of a container. */
export class Job {
  constructor(container: Container, id: string, offset?: number);
  readonly container: Container;
  readonly id: string;
  /**
   * Waits until it ends, or for what the request says. Without `offset`, output is looked at from where the last wait ended:
   * of a job that was started here from its begin.
   */
  wait(request?: Omit<JobWaitRequest, "container" | "job_id">, options?: CallOptions): Promise<JobWaitResult>;
  poll(options?: CallOptions): Promise<ExecPollResult>;
  read(request?: Omit<JobReadRequest, "container" | "job_id">, options?: CallOptions): Promise<JobReadResult>;
  cancel(options?: CallOptions): Promise<ExecCancelResult>;
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
  private constructor();
  /** How the command ended. */
  readonly result: Promise<ExecResult>;
  [Symbol.asyncIterator](): AsyncIterator<Chunk>;
  /** Ends the command, if it runs still. */
  close(): void;
}

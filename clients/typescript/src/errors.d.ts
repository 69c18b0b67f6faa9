import type { ExecResult } from "./operations.js";

/** A call that did not do what was requested. */
export class CoracleError extends Error {
  /** What programs branch on, such as `not_found`. */
  readonly code: string;
  /** What to do next. */
  readonly hint: string | null;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  readonly details: Record<string, unknown>;
  /** The whole answer. */
  readonly answer: Record<string, unknown>;
}

/** `coracle serve` has ended, or could not be started. */
export class ConnectionClosed extends CoracleError {}

/** A command ended with another exit code than 0. */
export class CommandFailed extends CoracleError {
  readonly result: ExecResult;
}

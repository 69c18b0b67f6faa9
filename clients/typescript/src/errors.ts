import type { ExecResult } from "./generated/operations.js";

/** A call that did not do what was requested. */
export class CoracleError extends Error {
  /** What programs branch on, such as `not_found`. */
  readonly code: string;
  /** What to do next. */
  readonly hint: string | null;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  /** More, by code, with the names of the wire. */
  readonly details: Record<string, unknown>;
  /** The whole answer, with the names of the wire. */
  readonly answer: Record<string, unknown>;

  constructor(answer: Record<string, unknown>) {
    const { code = "internal", error, message, hint, retryable, details } = answer;
    super(`${code}: ${error ?? message ?? "the call failed"}${hint ? `\n${hint}` : ""}`);
    this.name = new.target.name;
    this.code = code as string;
    this.hint = (hint as string | null | undefined) ?? null;
    this.retryable = Boolean(retryable);
    this.details = (details as Record<string, unknown> | undefined) ?? {};
    this.answer = answer;
  }
}

/** `coracle serve` has ended, or could not be started. */
export class ConnectionClosed extends CoracleError {
  constructor(message: string, hint: string) {
    super({ code: "connection_closed", error: message, hint });
  }
}

/** A command ended with another exit code than 0. */
export class CommandFailed extends CoracleError {
  readonly result: ExecResult;

  constructor(result: ExecResult) {
    const ended = result.exitCode === null ? `signal ${result.signal}` : `exit code ${result.exitCode}`;
    const how = result.timedOut ? "its time limit" : ended;
    super({ code: "command_failed", error: `the command ended with ${how}`, details: result });
    this.result = result;
  }
}

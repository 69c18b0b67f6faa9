/** A call that did not do what was requested. */
export class CoracleError extends Error {
  constructor(answer) {
    const code = answer.code ?? "internal";
    const text = answer.error ?? answer.message ?? "the call failed";
    super(`${code}: ${text}${answer.hint ? `\n${answer.hint}` : ""}`);
    this.name = "CoracleError";
    this.code = code;
    this.hint = answer.hint ?? null;
    this.retryable = Boolean(answer.retryable);
    this.details = answer.details ?? {};
    this.answer = answer;
  }
}

/** `coracle serve` has ended, or could not be started. */
export class ConnectionClosed extends CoracleError {
  constructor(message, hint) {
    super({ code: "connection_closed", error: message, hint });
    this.name = "ConnectionClosed";
  }
}

/** A command ended with another exit code than 0. */
export class CommandFailed extends CoracleError {
  constructor(result) {
    const ended = result.exit_code === null ? `signal ${result.signal}` : `exit code ${result.exit_code}`;
    const how = result.timed_out ? "its time limit" : ended;
    super({ code: "command_failed", error: `the command ended with ${how}`, details: result });
    this.name = "CommandFailed";
    this.result = result;
  }
}

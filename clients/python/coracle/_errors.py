"""The errors that `errors` derives the others from, and those that have no code of an answer."""

from __future__ import annotations

from typing import Any, Mapping


class Error(Exception):
    """A call that did not do what was requested."""

    #: What programs branch on, such as ``not_found``.
    code: str
    #: One sentence that names the object.
    message: str
    #: What to do next.
    hint: str | None
    #: Whether the same call may succeed later.
    retryable: bool
    #: More, by code.
    details: Mapping[str, Any]
    #: The whole answer.
    answer: Mapping[str, Any]

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.code = answer.get("code") or "internal"
        self.message = answer.get("error") or answer.get("message") or "the call failed"
        self.hint = answer.get("hint")
        self.retryable = bool(answer.get("retryable"))
        self.details = answer.get("details") or {}
        self.answer = answer
        hint = f"\n{self.hint}" if self.hint else ""
        super().__init__(f"{self.code}: {self.message}{hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is made again from its message otherwise: pools of processes send errors pickled.
        return type(self), (self.answer,)


class ConnectionClosed(Error):
    """``coracle serve`` has ended, or could not be started."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__({"code": "connection_closed", "error": message, "hint": hint})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.hint)


class CommandFailed(Error):
    """A command ended with another exit code than 0, and ``check`` was set."""

    #: The result of the command.
    result: Mapping[str, Any]

    def __init__(self, result: Mapping[str, Any]) -> None:
        code, signal = result.get("exit_code"), result.get("signal")
        how = f"exit code {code}" if code is not None else f"signal {signal}"
        if result.get("timed_out"):
            how = "its time limit"
        self.result = result
        super().__init__({"code": "command_failed", "error": f"the command ended with {how}", "details": result})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.result,)

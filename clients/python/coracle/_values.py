"""Values of answers."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Literal

from .events import Event


class Result(dict[str, Any]):
    """An object of an answer. Fields are attributes and items: ``r.exit_code`` is ``r["exit_code"]``.

    A field that an answer may have, and this one has not, is None as an attribute.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            if name in type(self).__annotations__:
                return None
            raise AttributeError(f"the answer has no field `{name}`") from None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of what a command prints."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    #: Bytes of the stream before it.
    offset: int

    @property
    def text(self) -> str:
        """The bytes as text; parts of a character are replaced."""
        return self.data.decode("utf-8", "replace")

    @classmethod
    def from_event(cls, event: Event) -> Chunk | None:
        """The piece in an event, or None for another event."""
        if event["event"] != "stdout" and event["event"] != "stderr":
            return None
        if "base64" in event:
            data = base64.b64decode(event["base64"])
        else:
            data = event.get("data", "").encode("utf-8", "surrogatepass")
        return cls(event["event"], data, event["offset"])

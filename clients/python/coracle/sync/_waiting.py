"""How synchronous code waits for answers and events."""

from __future__ import annotations

import queue
from concurrent.futures import Future
from typing import Any, Mapping

from .._connection import Connection, Listener
from .._values import Result


def answer(future: Future[Result]) -> Result:
    """Waits for an answer. An interrupt withdraws the call."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def close(connection: Connection) -> None:
    """Closes a connection."""
    connection.close()


class Events:
    """Events of one request, in order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()

    @property
    def listener(self) -> Listener:
        """Takes an event, in any thread."""
        return self._queue.put

    def end(self, _: Future[Result]) -> None:
        """No more events come."""
        self._queue.put(None)

    def next(self) -> Mapping[str, Any] | None:
        """The next event; None at the end."""
        return self._queue.get()

"""How synchronous code waits for answers and events."""

from __future__ import annotations

import queue
from concurrent.futures import Future
from typing import Any, Callable, Mapping

from .._connection import WINDOW, Connection
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
        # The connection sends no more than its window before some are taken.
        self._queue: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._taken = 0
        self.grant: Callable[[int], None] = lambda _: None

    def end(self, _: Future[Result]) -> None:
        """No more events come."""
        self.put(None)

    def put(self, event: Mapping[str, Any] | None) -> None:
        """Takes an event, in any thread."""
        self._queue.put(event)

    def next(self) -> Mapping[str, Any] | None:
        """The next event; None at the end."""
        event = self._queue.get()
        self._taken += 1
        if self._taken >= WINDOW // 2:
            self.grant(self._taken)
            self._taken = 0
        return event

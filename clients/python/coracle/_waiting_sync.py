"""How synchronous code waits for answers and events."""

from __future__ import annotations

import queue
from concurrent.futures import Future

from ._connection import Connection, Listener
from ._values import Result
from .events import Event


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


class Events(Listener):
    """Events of one request, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()

    def end(self, _: Future[Result]) -> None:
        """No more events come."""
        self.put(None)

    def put(self, event: Event | None) -> None:
        """Receives an event, in any thread."""
        self._queue.put(event)

    def next(self) -> Event | None:
        """The next event; None at the end."""
        event = self._queue.get()
        self.count_taken()
        return event

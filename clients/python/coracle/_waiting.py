"""How asynchronous code waits for answers and events."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from ._connection import Connection, Listener
from ._values import Result
from .events import Event


async def answer(future: Future[Result]) -> Result:
    """Waits for an answer. A cancelled task withdraws the call."""
    return await asyncio.wrap_future(future)


async def close(connection: Connection) -> None:
    """Closes a connection without holding up the event loop."""
    await asyncio.get_running_loop().run_in_executor(None, connection.close)


class Events(Listener):
    """Events of one request, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def end(self, _: Future[Result]) -> None:
        """No more events come."""
        self.put(None)

    def put(self, event: Event | None) -> None:
        """Receives an event, in any thread."""
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, event)
        except RuntimeError:
            # The event loop is closed, and nothing waits any more.
            pass

    async def next(self) -> Event | None:
        """The next event; None at the end."""
        event = await self._queue.get()
        self.count_taken()
        return event

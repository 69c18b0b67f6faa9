"""How asynchronous code waits for answers and events."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, Callable, Mapping

from ._connection import WINDOW, Connection
from ._values import Result


async def answer(future: Future[Result]) -> Result:
    """Waits for an answer. A cancelled task withdraws the call."""
    return await asyncio.wrap_future(future)


async def close(connection: Connection) -> None:
    """Closes a connection without holding up the event loop."""
    await asyncio.get_running_loop().run_in_executor(None, connection.close)


class Events:
    """Events of one request, in order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The connection sends no more than its window before some are taken.
        self._queue: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._taken = 0
        self.grant: Callable[[int], None] = lambda _: None

    def end(self, _: Future[Result]) -> None:
        """No more events come."""
        self.put(None)

    def put(self, event: Mapping[str, Any] | None) -> None:
        """Takes an event, in any thread."""
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, event)
        except RuntimeError:
            # The event loop is closed, and nothing waits any more.
            pass

    async def next(self) -> Mapping[str, Any] | None:
        """The next event; None at the end."""
        event = await self._queue.get()
        self._taken += 1
        if self._taken >= WINDOW // 2:
            self.grant(self._taken)
            self._taken = 0
        return event

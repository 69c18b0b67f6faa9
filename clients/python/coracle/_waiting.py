"""How asynchronous code waits for answers and events."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, Mapping

from ._connection import Connection, Listener
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
        self._queue: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()

    @property
    def listener(self) -> Listener:
        """Takes an event, in any thread."""
        return self._put

    def end(self, _: Future[Result]) -> None:
        """No more events come."""
        self._put(None)

    def _put(self, event: Mapping[str, Any] | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, event)
        except RuntimeError:
            # The event loop is closed, and nothing waits any more.
            pass

    async def next(self) -> Mapping[str, Any] | None:
        """The next event; None at the end."""
        return await self._queue.get()

"""Clients, containers, jobs and streams of output."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from . import _waiting
from ._connection import Connection, Content, Settings, abandon
from ._errors import CommandFailed, Error
from ._values import Chunk, Result
from .events import Event
from .operations import (
    ContainerOperations,
    CreateArguments,
    ExecArguments,
    ExecBackgroundArguments,
    ForkArguments,
    JobReadArguments,
    JobWaitArguments,
    Operations,
)
from .results import CreateResult, ExecPollResult, ExecResult, JobReadResult, JobWaitResult

OnEvent = Callable[[Event], object]


class Client(Operations):
    """A connection to `coracle serve`, with all operations and tools as methods.

    The program starts at the first call. Containers that it made are removed when it closes, unless they are persistent.
    """

    def __init__(
        self,
        *,
        program: str | None = None,
        session: str | None = None,
        engine: str | None = None,
        config: str | None = None,
        state_dir: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Makes a client; nothing is started yet.

        Args:
            program: The program `coracle`. Without it CORACLE_BIN, the one in this package, or that in PATH.
            session: Name of the session, whose containers another client of that name sees too.
            engine: `docker`, `podman`, `embedded` or `auto`.
            config: The file of the configuration.
            state_dir: The directory of records.
            cwd: The working directory, which `create` mounts.
            env: All variables of the program. Without it those of this process.
            settings: Keys of the configuration over those of its file, such as `{"max_containers": 100}`,
                `{"workspace": {"allow_roots": ["/data"]}}` or `{"log": {"level": "off"}}`.
        """
        self._connection = Connection(Settings(program, session, engine, config, state_dir, cwd, env, settings))

    def __repr__(self) -> str:
        return "<coracle.Client, closed>" if self._connection.is_closed else "<coracle.Client>"

    async def call(self, operation: str, on_event: OnEvent | None = None, **fields: Any) -> Result:
        """Carries out an operation by its name. What `on_event` raises ends the call."""
        return await self._exchange({"call": {"operation": operation, **_given(fields)}}, on_event)

    async def tool(self, name: str, on_event: OnEvent | None = None, **arguments: Any) -> Result:
        """Calls a tool by its name. What `on_event` raises ends the call."""
        return await self._exchange({"tool": name, "arguments": _given(arguments)}, on_event)

    async def close(self) -> None:
        """Ends the session."""
        await _waiting.close(self._connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, name: str, fields: Mapping[str, Any]) -> Result:
        return await self._exchange({"call": {"operation": name, **_given(fields)}}, None)

    async def _tool(self, name: str, fields: Mapping[str, Any]) -> Result:
        return await self._exchange({"tool": name, "arguments": _given(fields)}, None)

    async def _exchange(self, request: Mapping[str, Any], on_event: OnEvent | None) -> Result:
        if on_event is None:
            return await _waiting.answer(self._connection.request(request))
        # Not in the thread that reads: a listener may raise, or make a call.
        events = _waiting.Events()
        future = self._connection.request(request, events)
        future.add_done_callback(events.end)
        try:
            while (event := await events.next()) is not None:
                on_event(event)
        except BaseException:
            future.cancel()
            raise
        return await _waiting.answer(future)


_default: Client | None = None
_default_lock = threading.Lock()


def default_client() -> Client:
    """The client of containers that name none. It closes when the program ends.

    One whose `coracle serve` has ended is followed by a new one, which has none of its containers.
    """
    global _default
    with _default_lock:
        if _default is None or _default._connection.is_closed:
            _default = Client()
        return _default


class Container(ContainerOperations):
    """A container: made at the start of a `with` block, and removed at its end.

    One that is persistent, or that `if_exists="reuse"` found, stays.

    >>> async with coracle.Container(purpose="python") as c:
    ...     r = await c.exec("pytest -q")
    """

    #: Its name, once it is there.
    name: str
    #: What `create` answered.
    created: CreateResult | None

    def __init__(
        self, client: Client | None = None, *, on_event: OnEvent | None = None, **fields: Unpack[CreateArguments]
    ) -> None:
        """Takes the fields of `create`; nothing is made yet."""
        self.client = client or default_client()
        self.created = None
        self._fields: Mapping[str, Any] = fields
        self._on_event = on_event
        #: Whether the end of the block removes it.
        self._is_own = True

    @classmethod
    def attach(cls, name: str, client: Client | None = None) -> Self:
        """A container that is there. It stays at the end of a `with` block.

        Makes no call: the first call to a missing container raises `NotFound`.
        """
        container = cls(client)
        container.name, container._is_own = name, False
        return container

    def __repr__(self) -> str:
        return f"<coracle.Container {getattr(self, 'name', 'not made yet')}>"

    async def create(self) -> Self:
        """Makes the container."""
        self._has(CreateResult(await self.client.call("create", self._on_event, **self._fields)))
        return self

    def _has(self, created: CreateResult) -> None:
        self.created, self.name = created, created.container
        self._is_own = not (created.reused or created.persistent)

    async def __aenter__(self) -> Self:
        return await self.create() if self._is_own and self.created is None else self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_own:
            return
        try:
            await self.destroy()
        except Error as failed:
            if error is None:
                raise
            # What went wrong in the block is what its caller has to know.
            error.add_note(f"the container could not be removed: {failed}")

    async def run(self, command: str | Sequence[str], **options: Unpack[ExecArguments]) -> ExecResult:
        """Runs a command as `exec` does; one that does not end with 0 raises `CommandFailed`."""
        result = ExecResult(await self._call("exec", {**options, "container": self.name, "command": command}))
        if result.exit_code != 0:
            raise CommandFailed(result)
        return result

    def stream(self, command: str | Sequence[str], **options: Unpack[ExecArguments]) -> OutputStream:
        """Runs a command, and gives what it prints while it runs."""
        fields = {"operation": "exec", "container": self.name, "command": command, **_given(options)}
        return OutputStream(self.client._connection, {"call": fields})

    async def start(self, command: str | Sequence[str], **options: Unpack[ExecBackgroundArguments]) -> Job:
        """Starts a command as a job, with the fields of `exec_background`."""
        answer = await self._call("exec_background", {**options, "container": self.name, "command": command})
        return Job(self, answer.job_id, 0)

    def job(self, job_id: str) -> Job:
        """A job by its id."""
        return Job(self, job_id)

    async def fork_container(self, **fields: Unpack[ForkArguments]) -> Container:
        """Makes a container from this one as its files are now. It is removed at the end of its `with` block."""
        return await self._made("fork", fields)

    async def _made(self, operation: str, fields: Mapping[str, Any]) -> Container:
        answer = await self.client.call(operation, **{**fields, "container": self.name})
        made = Container(self.client)
        made._has(CreateResult(answer))
        return made

    async def read(self, path: str) -> bytes:
        """The bytes of a file that the user inside may read. A relative path begins at the working directory."""
        content = Content()
        request = {"tool": "download", "arguments": {"container": self.name, "path": path}}
        answer = await _waiting.answer(self.client._connection.request(request, content))
        return content.whole(answer.value.size_bytes)

    async def read_text(self, path: str) -> str:
        """The text of a file."""
        return (await self.read(path)).decode()

    async def write(self, path: str, content: bytes | str, *, executable: bool | None = None) -> None:
        """Writes a file where the user inside may, in place of one that is there: whole, or not at all."""
        data = content.encode() if isinstance(content, str) else content
        arguments = _given({"container": self.name, "path": path, "executable": executable})
        request = {"tool": "upload", "arguments": arguments}
        await _waiting.answer(self.client._connection.request(request, content=data))

    async def edit(self, path: str, old: str, new: str, *, replace_all: bool | None = None) -> None:
        """Replaces a text in a file; it has to be there exactly once, unless `replace_all`."""
        await self.read_file(path, limit=1)
        await self.edit_file(path, old_string=old, new_string=new, replace_all=replace_all)

    async def _call(self, name: str, fields: Mapping[str, Any]) -> Result:
        return await self.client._call(name, fields)

    async def _tool(self, name: str, fields: Mapping[str, Any]) -> Result:
        return await self.client._tool(name, fields)


class Job:
    """A command that runs in the background of a container."""

    def __init__(self, container: Container, job_id: str, offset: int | None = None) -> None:
        self.container = container
        self.id = job_id
        self._offset = offset

    def __repr__(self) -> str:
        return f"<coracle.Job {self.id} in {self.container.name}>"

    async def wait(self, **fields: Unpack[JobWaitArguments]) -> JobWaitResult:
        """Waits until it ends, or for what the fields of `job_wait` say.

        Without `offset`, output is looked at from where the last wait ended: of a job that was started here from its begin.
        """
        result = await self.container.job_wait(self.id, **{"offset": self._offset, **fields})  # type: ignore[arg-type]
        self._offset = result.next_offset
        return result

    async def poll(self) -> ExecPollResult:
        """Its state, and the last lines that it printed."""
        return await self.container.exec_poll(self.id)

    async def read(self, **fields: Unpack[JobReadArguments]) -> JobReadResult:
        """A page of its output, with the fields of `job_read`."""
        return await self.container.job_read(self.id, **fields)

    async def cancel(self) -> None:
        """Ends it with everything that it started."""
        await self.container.exec_cancel(self.id)


class OutputStream:
    """What a command prints while it runs; afterwards `result` has how it ended.

    A command whose chunks are not taken waits after a few MiB. The end of its `with` block ends the command; without one, the
    command ends when nothing holds the stream any more.
    """

    def __init__(self, connection: Connection, request: Mapping[str, Any]) -> None:
        self._events = _waiting.Events()
        self._future = connection.request(request, self._events)
        self._future.add_done_callback(self._events.end)
        self._is_read = False

    def __repr__(self) -> str:
        return f"<coracle.OutputStream, {'ended' if self._future.done() else 'running'}>"

    def __del__(self) -> None:
        # Absent if the request could not be sent.
        if future := getattr(self, "_future", None):
            abandon(future)

    @property
    def result(self) -> ExecResult:
        """How the command ended. A call that was not carried out raises its `Error`."""
        if not self._future.done():
            raise RuntimeError("the command runs: read its output to the end first")
        if self._future.cancelled():
            raise RuntimeError("the stream was closed before the command ended")
        return ExecResult(self._future.result())

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        while not self._is_read:
            event = await self._events.next()
            self._is_read = event is None
            chunk = Chunk.from_event(event) if event is not None else None
            if chunk is not None:
                return chunk
        if not self._future.cancelled():
            await _waiting.answer(self._future)
        raise StopAsyncIteration

    async def close(self) -> None:
        """Ends the command, if it runs still."""
        self._future.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields without those that were not given."""
    return {name: value for name, value in fields.items() if value is not None}

"""A connection to `coracle serve`: one process, a thread that writes to it, and one that reads its lines.

Requests come from any thread, and none waits for the program. An answer completes the future of its request; events go
to its listener, in order. Content of files goes in frames: `=`, the number of the request, a space, a number of bytes and a
newline, and then the bytes.
"""

from __future__ import annotations

import _thread
import atexit
import itertools
import json
import queue
import subprocess
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from ._errors import ConnectionClosed, Error
from ._program import find_program
from ._values import Result
from .errors import error_of
from .events import Event

#: Seconds that the program gets to end its session.
LEAVING = 40

#: The most bytes of a request.
MAX_BYTES = 8 << 20

#: Events that a listener holds before it takes some. Then the command waits, and other calls go on.
WINDOW = 64

#: Bytes of content that are sent before the program says that it has room for more.
ROOM = 4 << 20

#: The most bytes of a frame of content.
FRAME = 1 << 18

#: What is written at once: a line or a frame in two parts, or a request with its first frames.
_Parts = tuple[bytes | memoryview, ...]


class Listener(ABC):
    """Receives the events of one request, of which at most `WINDOW` wait to be taken."""

    def __init__(self) -> None:
        #: Allows the program to send so many more events.
        self.grant: Callable[[int], None] = lambda _: None
        self._received = self._taken = 0

    @abstractmethod
    def put(self, event: Event) -> None:
        """Receives an event in the thread that reads; must neither wait nor raise."""

    def count_received(self) -> None:
        """Counts an event in the thread that reads, which ends the connection if it was not granted."""
        self._received += 1
        if self._received - self._taken > WINDOW:
            raise ValueError(f"more than {WINDOW} events wait")

    def count_taken(self) -> None:
        """Counts an event that was taken. Grants come in halves of the window."""
        self._taken += 1
        if self._taken % (WINDOW // 2) == 0:
            self.grant(WINDOW // 2)


class Content(Listener):
    """A listener that collects the frames of a request."""

    def __init__(self) -> None:
        super().__init__()
        self._frames: list[bytes] = []

    def put(self, event: Event) -> None:
        """Only frames are of interest, but all events count."""
        self.count_taken()

    def frame(self, data: bytes) -> None:
        """Receives a frame in the thread that reads."""
        self._frames.append(data)
        self.count_taken()

    def whole(self, size: int) -> bytes:
        """The content, which has so many bytes."""
        content = b"".join(self._frames)
        if len(content) != size:
            raise ConnectionClosed(f"of {size} bytes {len(content)} arrived", "read the file again")
        return content


class _Upload:
    """Content on its way to the program."""

    def __init__(self, number: int, content: bytes) -> None:
        self._number = number
        self._rest = memoryview(content)
        self._has_ended = False

    def frames(self, room: int) -> list[_Parts]:
        """The next frames, as far as the program has room."""
        frames: list[_Parts] = []
        while room > 0 and self._rest:
            piece, self._rest = self._rest[: min(room, FRAME)], self._rest[min(room, FRAME) :]
            frames.append((b"=%d %d\n" % (self._number, len(piece)), piece))
            room -= len(piece)
        if not self._rest and not self._has_ended:
            self._has_ended = True
            frames.append((b"=%d 0\n" % self._number,))
        return frames


@dataclass(frozen=True, slots=True)
class Settings:
    """How the program is started."""

    program: str | None = None
    session: str | None = None
    engine: str | None = None
    config: str | None = None
    state_dir: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    settings: Mapping[str, Any] | None = None

    def words(self) -> list[str]:
        """The command line."""
        words = [self.program or find_program()]
        for name in ("config", "state_dir", "engine", "session"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"--{name.replace('_', '-')}={value}")
        words.append("serve")
        if self.settings is not None:
            words.append(f"--settings={json.dumps(self.settings)}")
        return words


@dataclass(slots=True)
class _Pending:
    future: Future[Result]
    listener: Listener | None
    upload: _Upload | None


class Connection:
    """A running `coracle serve`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pending: dict[int, _Pending] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        #: What is to be written; None ends the session.
        self._lines: queue.SimpleQueue[_Parts | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        #: Why no more requests are sent.
        self._closed: str | None = None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or its program has ended."""
        return self._closed is not None

    def request(
        self, body: Mapping[str, Any], listener: Listener | None = None, content: bytes | None = None
    ) -> Future[Result]:
        """Sends a request, with content for it. A cancelled future withdraws it."""
        future: Future[Result] = Future()
        number = next(self._ids)
        fields: dict[str, Any] = {"id": number, **body}
        if listener is not None:
            fields |= {"events": True, "window": WINDOW, "binary": isinstance(listener, Content)}
        upload = None
        if content is not None:
            fields["input"] = True
            upload = _Upload(number, content)
        # First: a request that cannot be sent gets no answer, and nothing may wait for one.
        parts: _Parts = (_encoded(fields),)
        if upload is not None:
            parts += tuple(itertools.chain.from_iterable(upload.frames(ROOM)))
        if listener is not None:
            listener.grant = lambda count: self._tell(number, {"more": number, "window": count})
        with self._lock:
            if self._closed is not None:
                raise ConnectionClosed(self._closed, "make a new client")
            self._pending[number] = _Pending(future, listener, upload)
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, daemon=True)
                self._writer.start()
                atexit.register(self.close)
        # At once: the thread that reads may send the next frames as soon as the first ones are written.
        self._lines.put(parts)
        future.add_done_callback(lambda it: self._tell(number, {"cancel": number}) if it.cancelled() else None)
        return future

    def close(self) -> None:
        """Ends the session: commands end, and containers that are not to outlive it are removed."""
        with self._lock:
            self._closed, writer = self._closed or "the client is closed", self._writer
        if writer is None:
            return
        atexit.unregister(self.close)
        self._lines.put(None)
        writer.join(LEAVING)
        process = self._process
        if process is None:
            return
        try:
            process.wait(LEAVING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        words: Sequence[str] = self._settings.words()
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                cwd=self._settings.cwd,
                env=None if self._settings.env is None else dict(self._settings.env),
                # Ctrl-C at a terminal is for this program, which then ends the session.
                start_new_session=True,
            )
        except OSError as error:
            raise ConnectionClosed(f"`{words[0]}` cannot be started: {error}") from error
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def _write(self) -> None:
        """Starts the program, and writes lines to it until the session ends."""
        while (line := self._lines.get()) is not None:
            if self._process is None:
                try:
                    self._process = self._started()
                except ConnectionClosed as error:
                    # The next request tries again.
                    self._fail(error)
                    continue
            assert self._process.stdin is not None
            try:
                for part in line:
                    rest = memoryview(part)
                    while rest:
                        rest = rest[self._process.stdin.write(rest) or 0 :]
            except (OSError, ValueError):
                # The program has ended: the reading thread fails what waits.
                pass
        try:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
        except OSError:
            pass

    def _tell(self, number: int, body: Mapping[str, Any]) -> None:
        """Sends something about a request that is carried out still."""
        with self._lock:
            if self.is_closed or number not in self._pending:
                return
        self._lines.put((_encoded({"id": next(self._ids), **body}),))

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        try:
            with open(process.stdout.fileno(), "rb", buffering=1 << 16, closefd=False) as lines:
                for line in lines:
                    if line.startswith(b"="):
                        number, count = map(int, line[1:].split())
                        self._framed(number, lines.read(count))
                    else:
                        self._received(json.loads(line, object_hook=Result))
        except Exception as error:
            # What waits would wait for ever: nothing reads any more.
            self._ended(f"an answer of `coracle serve` cannot be read: {error!r}")
            process.terminate()
        else:
            code = process.wait()
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            self._ended(f"`coracle serve` has ended ({how})")
            atexit.unregister(self.close)

    def _framed(self, number: int, data: bytes) -> None:
        pending = self._pending.get(number)
        if pending and isinstance(pending.listener, Content):
            pending.listener.count_received()
            pending.listener.frame(data)

    def _received(self, message: Result) -> None:
        number = message.get("id")
        if "event" in message:
            pending = self._pending.get(number)  # type: ignore[arg-type]
            if pending and pending.upload and message["event"]["event"] == "input":
                for frame in pending.upload.frames(message["event"]["room"]):
                    self._lines.put(frame)
            elif pending and pending.listener:
                pending.listener.count_received()
                pending.listener.put(message["event"])
            return
        with self._lock:
            pending = self._pending.pop(number, None)  # type: ignore[arg-type]
        if pending is None:
            return
        result: Result = message["result"]
        _complete(pending.future, error_of(result) if is_error(result) else result)

    def _ended(self, why: str) -> None:
        with self._lock:
            self._closed = self._closed or why
        # The thread that writes ends too.
        self._lines.put(None)
        self._fail(ConnectionClosed(why, "its standard error may say why; make a new client"))

    def _fail(self, error: ConnectionClosed) -> None:
        with self._lock:
            pending = list(self._pending.values())
            self._pending.clear()
        for it in pending:
            _complete(it.future, error)


def abandon(future: Future[Result]) -> None:
    """Withdraws a request from a destructor: this thread may hold the lock that the cancellation needs."""
    if not future.done():
        try:
            _thread.start_new_thread(future.cancel, ())
        except RuntimeError:
            # The interpreter ends, and the session with it.
            pass


def _encoded(fields: Mapping[str, Any]) -> bytes:
    """A line, if the program takes it."""
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line = text.encode()
    except UnicodeEncodeError as error:
        hint = "decode bytes and file names that are no UTF-8 by `errors=\"replace\"`, or send them as base64"
        raise _refused("a text has half of a surrogate pair, which is no character", hint) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(f"the fields cannot be sent as JSON: {error}", "give texts, numbers, lists and dicts") from error
    if len(line) > MAX_BYTES:
        hint = "write a file by `Container.write`, or copy it by `copy_in`"
        raise _refused(f"the request is larger than {MAX_BYTES} bytes", hint)
    return line + b"\n"


def _refused(message: str, hint: str) -> Error:
    return error_of({"success": False, "code": "invalid_input", "error": message, "hint": hint})


def is_error(result: Mapping[str, Any]) -> bool:
    """Whether a call was not carried out. A command that ran was, however it ended."""
    value = result.get("value")
    has_run = isinstance(value.get("exit_code") if isinstance(value, dict) else result.get("exitCode"), int)
    return not result.get("success") and (not has_run or result.get("code") == "cancelled")


def _complete(future: Future[Result], outcome: Result | Exception) -> None:
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        # It was cancelled meanwhile.
        pass

"""The tools of one machine for agent frameworks: shell, read, write, edit and python.

``coracle.adapters.openai_agents`` and ``coracle.adapters.pydantic_ai`` have them as objects of those frameworks, which are
imported with the module alone. For another framework take the functions of ``functions``.
"""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Mapping

from .._errors import ConnectionClosed, Error
from ..client import Container

#: Characters of an answer. The end of a long output says how the command ended.
MOST = 30_000


def functions(container: Container) -> list[Callable[..., Awaitable[str]]]:
    """Typed coroutine functions with docstrings, which answer text for a model.

    A call that is refused answers the reason and what to do, so that the model goes on with it. `ConnectionClosed` is
    raised: no call of the model succeeds after it.
    """

    async def shell(command: str, timeout: int = 120) -> str:
        """Run a command by the shell of a Linux machine that is yours; files and packages stay.

        Args:
            command: Shell text.
            timeout: Seconds until the command and everything it started is ended.
        """
        return await _text(_command(container.exec(command, timeout=timeout)))

    async def read(path: str, offset: int = 0, limit: int = 2000) -> str:
        """Read a text file with numbered lines.

        Args:
            path: The file, from the work directory.
            offset: Lines to skip.
            limit: Lines to read.
        """
        return await _text(_field(container.read_file(path, offset=offset, limit=limit), "content"))

    async def write(path: str, content: str) -> str:
        """Write a text file, in place of one that is there.

        Args:
            path: The file, from the work directory.
            content: All of its text.
        """
        return await _text(_done(container.write(path, content), f"Wrote {path}."))

    async def edit(path: str, old: str, new: str, replace_all: bool = False) -> str:
        """Replace a text in a file. It has to be there exactly once, unless all are to be replaced.

        Args:
            path: The file, from the work directory.
            old: The text as it is in the file, without line numbers.
            new: What stands there afterwards.
            replace_all: Replace each occurrence.
        """
        return await _text(_done(container.edit(path, old, new, replace_all=replace_all), f"Edited {path}."))

    async def python(code: str) -> str:
        """Run Python in the machine. Variables stay for later calls, and the last expression is shown.

        Args:
            code: The program.
        """
        return await _text(_evaluation(container.evaluate_python(code, persistent=True)))

    return [shell, read, write, edit, python]


async def _text(call: Awaitable[str]) -> str:
    try:
        text = await call
    except ConnectionClosed:
        raise
    except Error as error:
        return str(error)
    omitted = len(text) - MOST
    return text if omitted <= 0 else f"[{omitted} characters omitted]\n{text[-MOST:]}"


async def _command(call: Awaitable[Mapping[str, Any]]) -> str:
    result = await call
    code, output = result.get("exit_code"), f"{result['stdout']}{result['stderr']}"
    if code == 0:
        return output
    how = f"exit code {code}" if code is not None else f"signal {result.get('signal')}"
    if result.get("timed_out"):
        how = "the time limit"
    return f"{output.rstrip()}\n[ended with {how}]".lstrip()


async def _evaluation(call: Awaitable[Mapping[str, Any]]) -> str:
    result = await call
    value = result["value"]
    shown = [it["text"] for it in value.get("outputs", []) if "text" in it]
    # The message has the exception, or the time limit; a warning tells of variables that were lost before.
    notes = [] if result.get("success") else [result["message"]]
    if lost := (value.get("kernel") or {}).get("lost"):
        notes.append(f"The interpreter is gone ({lost}): its variables are lost.")
    notes += [it["message"] for it in result.get("warnings") or []]
    parts = [_stream(value, "stdout"), _stream(value, "stderr"), *shown, *(f"[{it}]" for it in notes)]
    return "\n".join(it.rstrip("\n") for it in parts if it)


def _stream(value: Mapping[str, Any], name: str) -> str:
    """The beginning of a stream, and the end of a long one."""
    head: str = value[name]
    tail = value.get(f"{name}_tail")
    return f"{head}\n[…]\n{tail}" if tail else head


async def _field(call: Awaitable[Mapping[str, Any]], name: str) -> str:
    text: str = (await call)["value"][name]
    return text


async def _done(call: Awaitable[None], text: str) -> str:
    await call
    return text

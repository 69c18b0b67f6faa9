"""Linux machines in containers, for programs: the client of Coracle.

>>> async with coracle.Container(purpose="python") as c:
...     r = await c.exec("pytest -q")
...     print(r.exit_code, r.stdout)

``coracle.sync`` has the same without coroutines.
"""

from ._errors import CommandFailed, ConnectionClosed, Error
from ._values import Chunk, Result
from .client import Client, Container, Job, OutputStream, default_client

__all__ = [
    "Chunk",
    "Client",
    "CommandFailed",
    "ConnectionClosed",
    "Container",
    "Error",
    "Job",
    "OutputStream",
    "Result",
    "default_client",
]

"""Linux machines in containers, for programs: the client of Coracle.

>>> async with coracle.Container(purpose="python") as c:
...     r = await c.exec("pytest -q")
...     print(r.exit_code, r.stdout)

``coracle.sync`` has the same without coroutines.
"""

from importlib.metadata import PackageNotFoundError as _Missing
from importlib.metadata import version as _version

from ._errors import (
    Cancelled,
    CommandFailed,
    ConnectionClosed,
    Error,
    InvalidInput,
    NotFound,
    PolicyDenied,
)
from ._values import Chunk, Result
from .client import Client, Container, Job, OutputStream, default_client

__all__ = [
    "Cancelled",
    "Chunk",
    "Client",
    "CommandFailed",
    "ConnectionClosed",
    "Container",
    "Error",
    "InvalidInput",
    "Job",
    "NotFound",
    "OutputStream",
    "PolicyDenied",
    "Result",
    "default_client",
]

try:
    __version__ = _version("coracle-client")
except _Missing:
    # A checkout that is not installed.
    __version__ = "0"

"""The client of Coracle without coroutines.

>>> with coracle.sync.Container(purpose="python") as c:
...     r = c.exec("pytest -q")
...     print(r.exit_code, r.stdout)
"""

from .._errors import (
    Cancelled,
    CommandFailed,
    ConnectionClosed,
    Error,
    InvalidInput,
    NotFound,
    PolicyDenied,
)
from .._values import Chunk, Result
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

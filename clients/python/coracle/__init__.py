"""Linux machines in containers, for programs: the client of Coracle.

>>> async with coracle.Container(purpose="python") as c:
...     r = await c.exec("pytest -q")
...     print(r.exit_code, r.stdout)

``coracle.sync`` has the same without coroutines.
"""

from . import errors
from ._values import Chunk, Result
from .client import Client, Container, Job, OutputStream, default_client
from .errors import *  # noqa: F403
from .events import Event, OutputEvent, ProgressEvent, StepEvent

__version__ = "0.1.0"

__all__ = [
    "Chunk",
    "Client",
    "Container",
    "Event",
    "Job",
    "OutputEvent",
    "OutputStream",
    "ProgressEvent",
    "Result",
    "StepEvent",
    "default_client",
]
__all__ += errors.__all__

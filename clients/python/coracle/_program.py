"""The program `coracle`: where it is, and how it is started."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from ._errors import ConnectionClosed

#: The program in the wheel of a platform.
PACKAGED = Path(__file__).parent / "bin" / "coracle"


def find_program() -> str:
    """``CORACLE_BIN``, the program in this package, or ``coracle`` in ``PATH``."""
    named = os.environ.get("CORACLE_BIN")
    if named:
        return named
    if PACKAGED.exists():
        return str(PACKAGED)
    found = shutil.which("coracle")
    if found is None:
        raise ConnectionClosed(
            "the program `coracle` was not found",
            "install the wheel of this platform, set CORACLE_BIN, or put `coracle` into PATH",
        )
    return found


def main() -> None:
    """Becomes the program in this package, with the same arguments.

    No other program: ``CORACLE_BIN`` and ``PATH`` may name the script that calls this, which would start itself for ever.
    """
    if not PACKAGED.exists():
        sys.exit("coracle: this package has no program: install the wheel of this platform")
    os.execv(PACKAGED, [str(PACKAGED), *sys.argv[1:]])

"""The program `coracle`: where it is, and how it is started."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from ._errors import ConnectionClosed


def find_program() -> str:
    """``CORACLE_BIN``, the program in this package, or ``coracle`` in ``PATH``."""
    named = os.environ.get("CORACLE_BIN")
    if named:
        return named
    packaged = Path(__file__).parent / "bin" / "coracle"
    if packaged.exists():
        return str(packaged)
    found = shutil.which("coracle")
    if found is None:
        raise ConnectionClosed(
            "the program `coracle` was not found",
            "install the wheel of this platform, set CORACLE_BIN, or put `coracle` into PATH",
        )
    return found


def main() -> None:
    """Becomes the program, with the same arguments."""
    program = find_program()
    os.execv(program, [program, *sys.argv[1:]])

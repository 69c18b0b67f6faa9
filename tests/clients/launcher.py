"""The command `coracle` of the Python package: it starts the program of its own package and no other.

Ends with 0 if everything was as it should be.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import coracle

PACKAGE = Path(coracle.__file__).parent
PROGRAM = "#!/bin/sh\necho packaged \"$@\"\n"
# In place of a command that starts itself for ever.
LIMIT = 20


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def installed(directory, with_program):
    """The command of the package in that directory, as an installer writes it."""
    shutil.copytree(PACKAGE, directory / "coracle", ignore=shutil.ignore_patterns("__pycache__", "bin"))
    if with_program:
        executable(directory / "coracle/bin/coracle", PROGRAM)
    script = f"#!{sys.executable}\nfrom coracle._program import main\nmain()\n"
    return executable(directory / "scripts/coracle", script)


def ran(command, **env):
    home = command.parent.parent
    env = {"PATH": f"{command.parent}:/usr/bin:/bin", "PYTHONPATH": str(home)} | env
    return subprocess.run([command, "a", "b c"], env=env, capture_output=True, text=True, timeout=LIMIT)


def starts_its_own_program(work):
    command = installed(work / "with", True)
    for env in [{}, {"CORACLE_BIN": str(command)}, {"CORACLE_BIN": "/nowhere/coracle"}]:
        it = ran(command, **env)
        assert (it.returncode, it.stdout) == (0, "packaged a b c\n"), it


def says_that_there_is_no_program(work):
    command = installed(work / "without", False)
    for env in [{}, {"CORACLE_BIN": str(command)}]:
        it = ran(command, **env)
        assert it.returncode == 1 and "this package has no program" in it.stderr, it


with tempfile.TemporaryDirectory() as directory:
    starts_its_own_program(Path(directory))
    says_that_there_is_no_program(Path(directory))

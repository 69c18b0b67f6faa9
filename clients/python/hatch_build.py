"""Generates modules before a build, and puts the program into a wheel.

The program that CORACLE_WHEEL_PROGRAM names goes into the wheel, which is then one of its platform, and so do the files of
the directory CORACLE_WHEEL_LICENCES.
"""

from __future__ import annotations

import os
import platform
import re
import runpy
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PROGRAM = os.environ.get("CORACLE_WHEEL_PROGRAM")
LICENCES = os.environ.get("CORACLE_WHEEL_LICENCES")


class Metadata(MetadataHookInterface):
    """The command, if the wheel has the program: without it, it would only hide another `coracle` in PATH."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        metadata["scripts"] = {"coracle": "coracle._program:main"} if PROGRAM else {}


class Build(BuildHookInterface[Any]):
    """Generated modules in each build; the program in a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        generated = runpy.run_path(str(Path(self.root, "generate.py")))["generate"]()
        # They are in `.gitignore`, whose files a build leaves out.
        build_data["artifacts"] += [f"/coracle/{it}" for it in generated]
        include: dict[str, str] = build_data["force_include"]
        if self.target_name == "sdist":
            licences = Path(self.root, "../..").glob("LICENSE-*")
            include |= {str(it): it.name for it in licences}
        elif PROGRAM and version != "editable":
            build_data["tag"] = f"py3-none-{platforms(Path(PROGRAM).read_bytes())}"
            build_data["pure_python"] = False
            include[PROGRAM] = "coracle/bin/coracle"
            info = f"{self.build_config.builder.artifact_project_id}.dist-info"
            licences = Path(LICENCES).iterdir() if LICENCES else []
            include |= {str(it): f"{info}/licenses/{it.name}" for it in licences}



def platforms(program: bytes) -> str:
    """The tags of the systems that the program runs on."""
    machine = platform.machine()
    if sys.platform == "darwin":
        return f"macosx_11_0_{machine}"
    # A program that is linked statically names no version of glibc, and runs with musl too.
    versions = [int(it) for it in re.findall(rb"GLIBC_2\.(\d+)", program)]
    if not versions:
        return f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    return f"manylinux_2_{max(17, *versions)}_{machine}"

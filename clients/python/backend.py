"""Builds the wheel with the standard library alone, so that no build needs a network.

The program in CORACLE_BIN goes into the wheel, which is then one of its platform, and so do the files of the directory
CORACLE_LICENCES.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import platform
import re
import sys
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).parent

#: Times in an archive: the same input is the same wheel.
EPOCH = (1980, 1, 1, 0, 0, 0)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel, and tells its name."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    program = os.environ.get("CORACLE_BIN")
    tag = f"py3-none-{platforms(Path(program).read_bytes()) if program else 'any'}"
    base = f"{project['name'].replace('-', '_')}-{project['version']}"
    name, info = f"{base}-{tag}.whl", f"{base}.dist-info"
    files = {str(it.relative_to(HERE)): it.read_bytes() for it in sources()}
    files[f"{info}/METADATA"] = metadata(project).encode()
    files[f"{info}/WHEEL"] = wheel(tag, program is None).encode()
    if program:
        # Without a program the command could start nothing, and would hide another `coracle` in PATH.
        files[f"{info}/entry_points.txt"] = b"[console_scripts]\ncoracle = coracle._program:main\n"
        files["coracle/bin/coracle"] = Path(program).read_bytes()
    licences = os.environ.get("CORACLE_LICENCES")
    for it in Path(licences).iterdir() if licences else []:
        files[f"{info}/licenses/{it.name}"] = it.read_bytes()
    record = f"{info}/RECORD"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(files.items()):
            add(archive, path, content)
        add(archive, record, recorded(files, record).encode())
    return name


def sources():
    """Files of the package, without what a test run left."""
    files = (HERE / "coracle").rglob("*")
    return sorted(it for it in files if it.suffix in (".py", ".typed"))


def add(archive, path, content):
    entry = zipfile.ZipInfo(path, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100755 if path == "coracle/bin/coracle" else 0o100644) << 16
    archive.writestr(entry, content)


def platforms(program):
    """The tags of the systems that the program runs on."""
    machine = platform.machine()
    if sys.platform == "darwin":
        return f"macosx_11_0_{machine}"
    # A program that is linked statically names no version of glibc, and runs with musl too.
    versions = [int(it) for it in re.findall(rb"GLIBC_2\.(\d+)", program)]
    if not versions:
        return f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    return f"manylinux_2_{max(17, *versions)}_{machine}"


def metadata(project):
    fields = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    for extra, packages in project["optional-dependencies"].items():
        fields.append(f"Provides-Extra: {extra}")
        fields += [f'Requires-Dist: {it}; extra == "{extra}"' for it in packages]
    return "\n".join(fields) + "\n\n" + (HERE / "README.md").read_text()


def wheel(tag, is_pure):
    python, abi, systems = tag.split("-")
    tags = "".join(f"Tag: {python}-{abi}-{it}\n" for it in systems.split("."))
    return f"Wheel-Version: 1.0\nGenerator: coracle\nRoot-Is-Purelib: {str(is_pure).lower()}\n{tags}"


def recorded(files, record):
    """Each file with its digest and size, as installers check it."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for path, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(content)])
    rows.writerow([record, "", ""])
    return text.getvalue()


if __name__ == "__main__":
    print(build_wheel(sys.argv[1]))

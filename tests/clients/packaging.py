"""What pip and `python -m build` make of the Python package: by a Python that has hatchling, without a network.

packaging.py PACKAGE: PACKAGE is the directory of the package. Ends with 0 if everything was as it should be.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

PACKAGE = Path(sys.argv[1])
GENERATED = {"errors.py", "events.py", "operations.py", "results.py", "sync/__init__.py", "sync/client.py"}
LIMIT = 120


def run(*words, **env):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CORACLE_", "PYTHONPATH"))} | env
    ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=LIMIT, cwd="/")
    assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def built(source, kind, work, **env):
    """The archive that a build of that kind writes."""
    script = f"import os, hatchling.build as b; os.chdir({str(source)!r}); print(b.build_{kind}({str(work)!r}))"
    return work / run(sys.executable, "-c", script, **env).splitlines()[-1]


def files_of_wheel(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"coracle/{it}" for it in GENERATED} <= set(names), names
    return {name.rpartition("/")[2] for name in names}


def wheel_has_the_command_with_the_program_alone(work):
    program = work / "program"
    program.write_text("#!/bin/sh\n")
    for env in [{}, {"CORACLE_WHEEL_PROGRAM": str(program)}]:
        files = files_of_wheel(built(PACKAGE, "wheel", work, **env))
        assert ("coracle" in files, "entry_points.txt" in files) == (bool(env), bool(env)), files


def sdist_has_what_a_wheel_needs(work):
    archive = tarfile.open(built(PACKAGE, "sdist", work))
    archive.extractall(work, filter="data")
    source = work / archive.getnames()[0].partition("/")[0]
    assert {"LICENSE-APACHE", "LICENSE-MIT", "PKG-INFO", "README.md"} <= {it.name for it in source.iterdir()}
    metadata = (source / "PKG-INFO").read_text()
    for field in ["Author: ", "Classifier: Typing :: Typed", "Keywords: ", "License-Expression: ", "Project-URL: "]:
        assert f"\n{field}" in metadata, metadata
    assert "LICENSE-MIT" in files_of_wheel(built(source, "wheel", work))


def an_editable_install_is_the_source(work):
    venv.create(work / "venv", with_pip=True)
    python = work / "venv/bin/python"
    # The builder of this Python, in place of one from a registry.
    own = run(python, "-c", "import site; print(site.getsitepackages()[0])").strip()
    (Path(own) / "builder.pth").write_text("\n".join(it for it in sys.path if it.endswith("site-packages")))
    install = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--editable", PACKAGE]
    run(python, "-m", "pip", "--disable-pip-version-check", *install)
    shown = run(python, "-c", "import coracle, coracle.sync; print(coracle.__file__, coracle.sync.Client())")
    assert shown.split() == [str(PACKAGE / "coracle/__init__.py"), "<coracle.sync.Client>"], shown
    assert not (work / "venv/bin/coracle").exists()


for part in [wheel_has_the_command_with_the_program_alone, sdist_has_what_a_wheel_needs, an_editable_install_is_the_source]:
    with tempfile.TemporaryDirectory() as directory:
        part(Path(directory))

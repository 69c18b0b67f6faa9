"""How long programs of the Python client and of other libraries wait for containers: one of each in turn, on Docker, of one image.

peers_bench.py OUT ROUNDS MEGABYTES writes OUT as JSON: for each library and step the seconds of every round.
"""

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import coracle.sync
import docker
from swerex.deployment.docker import DockerDeployment
from swerex.runtime.abstract import Command, UploadRequest
from testcontainers.core.container import DockerContainer

import llm_sandbox

#: Has Python and the program that SWE-ReX runs in its containers.
IMAGE = "coracle-bench-peers:1"

#: SWE-ReX, with what it imports and does not require.
PACKAGES = ["swe-rex", "aiohttp"]

#: The packages of the other libraries.
PEERS = {
    "docker-py": "docker",
    "testcontainers": "testcontainers",
    "llm-sandbox": "llm-sandbox",
    "SWE-ReX": "swe-rex",
}

#: Commands of a round, one after another.
CALLS = 20

FILE = "/tmp/bench.bin"


def prepare():
    """Makes the image of a container of the Python purpose, if it is missing."""
    engine = docker.from_env()
    if engine.images.list(IMAGE):
        return
    with coracle.sync.Client(engine="docker") as client:
        with coracle.sync.Container(client, purpose="python", mount_cwd=False) as container:
            words = ["python3", "-m", "pip", "install", "--quiet", "--break-system-packages", *PACKAGES]
            with tempfile.TemporaryDirectory() as wheels:
                subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--dest", wheels, *PACKAGES], check=True)
                for wheel in Path(wheels).iterdir():
                    container.write(f"/tmp/wheels/{wheel.name}", wheel.read_bytes())
            container.run([*words, "--no-index", "--find-links", "/tmp/wheels"], as_root=True)
            made = engine.containers.get(container.name).commit()
    # The files alone: a commit keeps the program that the container started with, and labels that only their own state
    # directory trusts.
    environment = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8"
    file = f'FROM {made.id} AS made\nFROM scratch\nCOPY --from=made / /\nENV {environment}\nCMD ["python3"]\n'
    engine.images.build(fileobj=io.BytesIO(file.encode()), tag=IMAGE)


def archive(content):
    """A tar archive with one file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(Path(FILE).name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def extracted(stream):
    """The file of an archive that comes in pieces."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
        return tar.extractfile(tar.getmembers()[0]).read()


class Coracle:
    """The client, with a session that stays open."""

    def __init__(self, engine):
        self._client = coracle.sync.Client(engine=engine)

    def create(self):
        self._container = coracle.sync.Container(self._client, image=IMAGE, mount_cwd=False).create()

    def exec(self):
        assert self._container.exec(["true"]).exit_code == 0

    def write(self, content):
        self._container.write(FILE, content)

    def read(self):
        return self._container.read(FILE)

    def destroy(self):
        self._container.destroy()

    def close(self):
        self._client.close()


class DockerPy:
    """The engine's own library."""

    def __init__(self):
        self._engine = docker.from_env()

    def create(self):
        self._container = self._engine.containers.run(IMAGE, ["sleep", "infinity"], detach=True)

    def exec(self):
        assert self._container.exec_run(["true"]).exit_code == 0

    def write(self, content):
        assert self._container.put_archive("/tmp", archive(content))

    def read(self):
        return extracted(self._container.get_archive(FILE)[0])

    def destroy(self):
        self._container.remove(force=True)

    def close(self):
        self._engine.close()


class Testcontainers(DockerPy):
    """The same calls below its container."""

    def __init__(self):
        pass

    def create(self):
        self._managed = DockerContainer(IMAGE).with_command("sleep infinity").start()
        self._container = self._managed.get_wrapped_container()

    def destroy(self):
        self._managed.stop()

    def close(self):
        pass


class LlmSandbox:
    """A session for commands, without its virtual environment."""

    def create(self):
        self._session = llm_sandbox.SandboxSession(
            image=IMAGE, lang="python", skip_environment_setup=True, keep_template=True, workdir="/tmp"
        )
        self._session.open()

    def exec(self):
        assert self._session.execute_command("true").exit_code == 0

    def write(self, content):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            self._session.copy_to_runtime(file.name, FILE)

    def read(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "file"
            self._session.copy_from_runtime(FILE, str(path))
            return path.read_bytes()

    def destroy(self):
        self._session.close()

    def close(self):
        pass


class SweRex:
    """A deployment on Docker. Its files are texts, so content is read by a text of one byte a character."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()

    def _run(self, work):
        return self._loop.run_until_complete(work)

    def create(self):
        self._deployment = DockerDeployment(image=IMAGE, pull="never")
        self._run(self._deployment.start())

    def exec(self):
        assert self._run(self._deployment.runtime.execute(Command(command=["true"]))).exit_code == 0

    def write(self, content):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            self._run(self._deployment.runtime.upload(UploadRequest(source_path=file.name, target_path=FILE)))

    def read(self):
        return None

    def destroy(self):
        self._run(self._deployment.stop())

    def close(self):
        self._loop.close()


def timed(act, *args):
    begun = time.perf_counter()
    result = act(*args)
    return time.perf_counter() - begun, result


def one_round(library, content, seconds):
    """One container from its creation to its end."""

    def note(step, took):
        seconds.setdefault(step, []).append(took)

    note("create", timed(library.create)[0])
    try:
        library.exec()
        note("exec", timed(lambda: [library.exec() for _ in range(CALLS)])[0] / CALLS)
        note("write", timed(library.write, content)[0])
        took, read = timed(library.read)
        if read is not None:
            assert read == content, type(library).__name__
            note("read", took)
    finally:
        note("destroy", timed(library.destroy)[0])


def main(out, rounds, megabytes):
    logging.disable(logging.CRITICAL)
    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
    prepare()
    libraries = {
        "coracle": Coracle("docker"),
        "docker-py": DockerPy(),
        "testcontainers": Testcontainers(),
        "llm-sandbox": LlmSandbox(),
        "SWE-ReX": SweRex(),
    }
    content = os.urandom(int(megabytes) * 1_000_000)
    measured = {name: {} for name in libraries}
    # By turns, so that what slows the machine slows all of them. The first round warms up.
    for number in range(int(rounds) + 1):
        for name, library in libraries.items():
            one_round(library, content, measured[name] if number else {})
    for library in libraries.values():
        library.close()
    versions = {name: version(package) for name, package in PEERS.items()}
    Path(out).write_text(json.dumps({"megabytes": int(megabytes), "versions": versions, "seconds": measured}))


main(*sys.argv[1:])

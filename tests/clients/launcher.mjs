// The command `coracle` of the TypeScript package: it starts the program of its own package and no other, and both end
// together.
//
// launcher.mjs PACKAGE: PACKAGE is the directory of the package. Ends with 0 if everything was as it should be.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

const [directory] = process.argv.slice(2);
const work = mkdtempSync(join(tmpdir(), "coracle-launcher-"));
// In place of a command that starts itself for ever.
const LIMIT = 20_000;

function write(path, text, mode) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
}

/** The command of a copy of the package with that program, as npm links it. */
function installed(name, program, mode = 0o755) {
  const at = join(work, name);
  for (const it of ["dist", "package.json"]) cpSync(join(directory, it), join(at, it), { recursive: true });
  if (program) write(join(at, "bin/coracle"), `#!/bin/sh\n${program}\n`, mode);
  mkdirSync(join(at, ".bin"));
  chmodSync(join(at, "dist/run.js"), 0o755);
  symlinkSync(join(at, "dist/run.js"), join(at, ".bin/coracle"));
  return join(at, ".bin/coracle");
}

/** Runs the command until it exits. `act` gets its process after its first output. */
async function ran(command, { env = {}, act } = {}) {
  // A process group of its own, so that the limit ends all that it started.
  const path = [dirname(command), dirname(process.execPath), "/usr/bin", "/bin"].join(":");
  const settings = { env: { PATH: path, ...env }, detached: true, stdio: ["ignore", "pipe", "pipe"] };
  const child = spawn(command, ["a", "b c"], settings);
  const limit = setTimeout(() => process.kill(-child.pid, "SIGKILL"), LIMIT);
  const said = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].on("data", (bytes) => (said[name] += bytes));
  if (act) child.stdout.once("data", () => act(child));
  const [code, signal] = await once(child, "close");
  clearTimeout(limit);
  return { code, signal, ...said };
}

async function startsItsOwnProgram() {
  const command = installed("with", 'echo packaged "$@"; exit 3');
  for (const env of [{}, { CORACLE_BIN: command }, { CORACLE_BIN: "/nowhere/coracle" }]) {
    assert.deepEqual(await ran(command, { env }), { code: 3, signal: null, stdout: "packaged a b c\n", stderr: "" });
  }
}

async function saysThatThereIsNoProgram() {
  const command = installed("without");
  for (const env of [{}, { CORACLE_BIN: command }]) {
    const it = await ran(command, { env });
    assert.equal(it.code, 1);
    assert.match(it.stderr, /this package has no program/);
  }
}

async function clientsPassOverTheCommandWithoutAProgram() {
  const own = write(join(work, "own/coracle"), "#!/bin/sh\n", 0o755);
  const { findProgram } = await import(join(work, "without/dist/program.js"));
  delete process.env.CORACLE_BIN;
  process.env.PATH = [join(work, "without/.bin"), dirname(own)].join(":");
  assert.equal(findProgram(), own);
}

async function saysThatTheProgramCannotBeStarted() {
  const it = await ran(installed("refused", "exit 0", 0o644));
  assert.equal(it.code, 1);
  assert.match(it.stderr, /^coracle: .*EACCES/);
}

async function passesSignalsToTheProgram() {
  const waits = "while :; do sleep 0.1; done";
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) {
    const mark = join(work, `ended-by-${signal}`);
    const command = installed(signal, `trap 'touch ${mark}; exit 7' ${signal.slice(3)}; echo ready; ${waits}`);
    const it = await ran(command, { act: (child) => child.kill(signal) });
    assert.deepEqual([it.code, it.signal, existsSync(mark)], [7, null, true], signal);
  }
}

async function endsAsTheProgramEnds() {
  const terminated = await ran(installed("terminated", "kill -TERM $$"));
  assert.deepEqual([terminated.code, terminated.signal], [null, "SIGTERM"]);
  const killed = await ran(installed("killed", "kill -KILL $$"));
  assert.deepEqual([killed.code, killed.signal], [137, null]);
}

try {
  await startsItsOwnProgram();
  await saysThatThereIsNoProgram();
  await clientsPassOverTheCommandWithoutAProgram();
  await saysThatTheProgramCannotBeStarted();
  await passesSignalsToTheProgram();
  await endsAsTheProgramEnds();
} finally {
  rmSync(work, { recursive: true });
}

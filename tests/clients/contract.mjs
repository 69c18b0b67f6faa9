// The operations on containers through the TypeScript package.
//
// contract.mjs PACKAGE IMAGE LABEL uses the program in CORACLE_BIN. PACKAGE is the directory of the package, LABEL is
// `NAME=VALUE`. Ends with 0 if everything was as it should be.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const [directory, image, label] = process.argv.slice(2);
const { Client, CommandFailed, ConnectionClosed, Container, NotFound } = await import(`${directory}/dist/index.js`);

const [labelName, labelValue] = label.split("=");
const fields = { image, mountCwd: false, labels: { [labelName]: labelValue } };

async function failure(code, promise) {
  const error = await promise.then(
    () => assert.fail(`no failure, but ${code} was expected`),
    (error) => error,
  );
  assert.equal(error.code, code, error);
  assert.ok(error.hint, error);
}

async function commands(c) {
  const r = await c.exec("echo out; echo err >&2; exit 3");
  assert.deepEqual([r.exitCode, r.stdout, r.stderr], [3, "out\n", "err\n"]);
  assert.equal((await c.exec(["cat"], { stdin: "typed" })).stdout, "typed");
  assert.equal((await c.run("echo $A", { env: { A: "b" } })).stdout, "b\n");
  await assert.rejects(c.run("exit 4"), (error) => error instanceof CommandFailed && error.result.exitCode === 4);
  assert.ok((await c.exec("sleep 60", { timeout: 0.3 })).timedOut);
  await failure("unknown_field", c.client.call("exec", { container: c.name, comand: "ls" }));
  await failure("not_found", c.client.exec({ container: "no-such-container", command: "ls" }));
  await assert.rejects(c.client.exec({ container: "no-such-container", command: "ls" }), NotFound);
}

async function aSlowReaderSlowsItsCommandAndNothingElse(c) {
  const script = "i=0; while :; do head -c 65536 /dev/zero; i=$((i+1)); echo $i > /tmp/n.new; mv /tmp/n.new /tmp/n; done";
  const printed = async () => Number((await c.exec("cat /tmp/n || echo 0")).stdout);
  const stream = c.stream(script);
  const seen = [-1];
  const giveUp = Date.now() + 30_000;
  while (seen.length < 8 || seen.at(-1) === 0 || new Set(seen.slice(-8)).size > 1) {
    assert.ok(Date.now() < giveUp, `the command goes on: ${seen.slice(-3)} times 64 KiB`);
    seen.push(await printed());
  }
  assert.ok(seen.at(-1) < 512, seen);
  let taken = 0;
  for await (const chunk of stream) {
    taken += chunk.data.length;
    if (taken > (seen.at(-1) + 64) * 65536) break;
  }
  assert.ok((await printed()) > seen.at(-1));
  await nothingRuns(c);
}

async function nothingRuns(c) {
  const giveUp = Date.now() + 30_000;
  while ((await c.jobs()).jobs.some((it) => it.running)) {
    assert.ok(Date.now() < giveUp, "the command runs still");
    await sleep(50);
  }
}

async function streams(c) {
  const stream = c.stream("echo one; echo two >&2; printf '\\377\\303'; sleep 0.2; printf '\\251'");
  const chunks = { stdout: [], stderr: [] };
  for await (const chunk of stream) chunks[chunk.stream].push(chunk.data);
  assert.deepEqual(Buffer.concat(chunks.stdout), Buffer.from([..."one\n"].map((it) => it.charCodeAt(0)).concat([255, 195, 169])));
  assert.equal(Buffer.concat(chunks.stderr).toString(), "two\n");
  assert.equal((await stream.result).exitCode, 0);
  // The first piece comes while the command runs: the end is up to this side.
  for await (const chunk of c.stream("echo begun; exec sleep 600")) {
    assert.equal(chunk.data.toString(), "begun\n");
    break;
  }
  await nothingRuns(c);
}

async function jobs(c) {
  const job = await c.start("echo begun; sleep 600");
  assert.equal((await job.wait({ until: "regex", pattern: "begun" })).reason, "regex");
  assert.ok((await job.poll()).running);
  await job.cancel();
  assert.ok(!(await job.poll()).running);
  const other = await c.start("echo done");
  assert.equal((await other.wait({ timeout: 30 })).exitCode, 0);
  assert.equal((await other.read()).data, "done\n");
  assert.equal((await c.job(other.id).poll()).state, "exited");
}

async function files(c) {
  await c.write("a/one.txt", "hello\n");
  assert.equal((await c.exec("cat a/one.txt")).stdout, "hello\n");
  const data = Buffer.alloc(25_600_000, Uint8Array.from({ length: 256 }, (_, n) => n));
  await c.write("a/one.txt", data);
  assert.ok((await c.read("a/one.txt")).equals(data));
  await c.write("two.txt", "red green\n");
  await c.edit("two.txt", "green", "blue");
  assert.equal(await c.readText("two.txt"), "red blue\n");
  assert.deepEqual((await c.glob({ pattern: "**/*.txt" })).value.map((it) => it.path), ["a/one.txt", "two.txt"]);
  assert.deepEqual((await c.grep({ pattern: "blue" })).value.map((it) => it.line), ["red blue"]);
  await failure("file_not_found", c.read("nowhere"));
  for (const path of ["/tmp/out side/one", "~/of-the-home"]) {
    for (const content of [data, Buffer.alloc(0), Buffer.from("short")]) {
      await c.write(path, content, { executable: true });
      assert.ok((await c.read(path)).equals(content), path);
    }
  }
  await assert.rejects(c.read("/tmp/nowhere"), { code: "file_not_found" });
  writeFileSync("of-the-host.txt", "host\n");
  await c.copyIn({ hostPath: "of-the-host.txt", containerPath: "three.txt" });
  await c.run('test "$(cat three.txt)" = host && echo back > three.txt');
  await c.copyOut({ hostPath: "back.txt", containerPath: "three.txt" });
  assert.equal(readFileSync("back.txt", "utf8"), "back\n");
}

async function copies(c) {
  const names = async () => (await c.client.list()).containers.map((it) => it.name);
  const fork = await c.forkContainer();
  assert.equal(await fork.readText("two.txt"), "red blue\n");
  assert.ok((await names()).includes(fork.name));
  await fork.destroy();
  assert.ok(!(await names()).includes(fork.name));
  const snapshot = `kept-${c.name}`;
  assert.equal((await c.snapshot({ name: snapshot })).snapshot, snapshot);
  const again = { name: `${c.name}-again`, snapshot, labels: fields.labels, mountCwd: false };
  const restored = Container.attach((await c.client.restore(again)).container, c.client);
  assert.equal(await restored.readText("two.txt"), "red blue\n");
  await restored.destroy();
  await c.client.snapshotDelete({ name: snapshot });
}

async function cancelled(c) {
  const abort = new AbortController();
  const call = c.exec("echo begun > begun; exec sleep 600", {}, { signal: abort.signal });
  while ((await c.exec("test -e begun")).exitCode !== 0) await sleep(20);
  abort.abort();
  await assert.rejects(call, { name: "AbortError" });
  await nothingRuns(c);
}

async function together(c) {
  const slow = c.exec("until test -e go; do sleep 0.05; done");
  await c.run("touch go");
  assert.equal((await slow).exitCode, 0);
  const results = await Promise.all(Array.from({ length: 50 }, (_, n) => c.exec(`echo ${n}`)));
  assert.deepEqual(results.map((it) => it.stdout), Array.from({ length: 50 }, (_, n) => `${n}\n`));
}

const client = new Client();
const events = [];
const c = await Container.create(fields, { client, onEvent: (it) => events.push(it.event) });
assert.equal(c.created.container, c.name);
assert.ok(events.includes("step") || events.includes("progress"), events.join());
for (const part of [commands, streams, aSlowReaderSlowsItsCommandAndNothingElse, jobs, files, copies, cancelled, together]) await part(c);
assert.ok((await c.destroy()).detail);
assert.equal((await client.list()).count, 0);
await Container.using(fields, async (other) => assert.equal((await other.run("echo hi")).stdout, "hi\n"), { client });
assert.equal((await client.list()).count, 0);
const left = await Container.create(fields, { client });
await client.close();
await assert.rejects(client.list(), (error) => error instanceof ConnectionClosed);
// The end of a session removes what it made.
const after = new Client();
assert.ok(!(await after.list()).containers.some((it) => it.name === left.name));
await after.close();

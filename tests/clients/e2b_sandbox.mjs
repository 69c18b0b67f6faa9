// A program that uses E2B's SDK for JavaScript as it is, with the address and the key in its own variables. Ends with 0 if
// everything was as it should be.

import assert from "node:assert/strict";

import { CommandExitError, NotFoundError, Sandbox, TimeoutError } from "e2b";

const box = await Sandbox.create({ timeoutMs: 300_000, metadata: { part: "js" }, envs: { BOX: "of the sandbox" } });
const done = await box.commands.run('echo "$BOX"; echo err >&2');
assert.deepEqual([done.stdout, done.stderr, done.exitCode], ["of the sandbox\n", "err\n", 0]);
await assert.rejects(box.commands.run("exit 7"), (err) => err instanceof CommandExitError && err.exitCode === 7);
await assert.rejects(box.commands.run("sleep 600", { timeoutMs: 1000 }), TimeoutError);

const cat = await box.commands.run("cat", { background: true, stdin: true });
await box.commands.sendStdin(cat.pid, "typed\n");
await box.commands.closeStdin(cat.pid);
assert.equal((await cat.wait()).stdout, "typed\n");
const rests = await box.commands.run("sleep 600", { background: true });
assert.ok((await box.commands.list()).some((it) => it.pid === rests.pid));
assert.ok(await rests.kill());

const seen = [];
const terminal = await box.pty.create({ cols: 80, rows: 24, onData: (it) => seen.push(Buffer.from(it)) });
await box.pty.resize(terminal.pid, { cols: 100, rows: 30 });
await box.pty.sendInput(terminal.pid, new TextEncoder().encode("stty size; exit 0\n"));
await terminal.wait();
assert.match(Buffer.concat(seen).toString(), /30 100/);

await box.files.write("notes/a.txt", "one\n");
assert.equal(await box.files.read("notes/a.txt"), "one\n");
const bytes = new Uint8Array(1_000_000).map((_, at) => at % 251);
await box.files.write("b.bin", bytes.buffer);
assert.deepEqual(await box.files.read("b.bin", { format: "bytes" }), bytes);
await box.files.write([{ path: "many/1", data: "1" }, { path: "many/2", data: "2" }]);
assert.deepEqual((await box.files.list("many")).map((it) => it.name).sort(), ["1", "2"]);
assert.equal((await box.files.getInfo("b.bin")).size, 1_000_000);
await box.files.rename("many/1", "moved");
assert.equal(await box.files.exists("many/1"), false);
await assert.rejects(box.files.read("none"), NotFoundError);

const listed = await Sandbox.list({ query: { metadata: { part: "js" } } }).nextItems();
assert.deepEqual(listed.map((it) => it.sandboxId), [box.sandboxId]);
const again = await Sandbox.connect(box.sandboxId);
assert.equal((await again.commands.run("cat moved")).stdout, "1");
assert.equal(await box.kill(), true);
assert.equal(await box.isRunning(), false);
console.log("all of it works");

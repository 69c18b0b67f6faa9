// What the TypeScript package does where a request, an event or the program is not as it should be.
//
// connection.mjs PACKAGE PROGRAM: PACKAGE is the directory of the package, PROGRAM is `scripted_serve.py`; the program
// in CORACLE_BIN is the real one. Ends with 0 if everything was as it should be.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

const [directory, program] = process.argv.slice(2);
const coracle = await import(`${directory}/dist/index.js`);
const { Client, ConnectionClosed, Container, CoracleError, defaultClient } = coracle;

// In place of a call that waits for ever.
const limit = setTimeout(() => process.exit(9), 60_000);

async function requestsThatCannotBeSent() {
  const client = new Client();
  let deep = [];
  for (let n = 0; n < 200; n++) deep = [deep];
  for (const field of ["x".repeat(9 << 20), "a 😀".slice(0, 3), { "\ud83d": 1 }, 1n]) {
    const failed = (error) => error instanceof CoracleError && error.code === "invalid_input" && error.hint !== null;
    await assert.rejects(client.call("list", { field }), failed);
  }
  // The program refuses this one, under its id.
  await assert.rejects(client.call("list", { field: deep }), { code: "invalid_json" });
  assert.ok((await client.call("list")).success);
  await assert.rejects(client.call("list", { field: "😀" }), { code: "unknown_field" });
  await client.close();
}

async function listeners(client) {
  const onEvent = () => {
    throw new RangeError("of the listener");
  };
  await assert.rejects(client.call("steps", {}, { onEvent }), RangeError);
  const events = [];
  await client.call("steps", {}, { onEvent: (it) => events.push(it.event) });
  assert.deepEqual(events, ["step", "step"]);
}

async function streams(client) {
  const c = Container.attach("c", client);
  const { calls } = await client.call("state");
  const stream = c.stream("run", {}, { signal: AbortSignal.abort() });
  await assert.rejects(stream.result, { name: "AbortError" });
  assert.deepEqual((await client.call("state")).calls, [...calls, "state"]);
  const events = [];
  for await (const chunk of c.stream("run", {}, { onEvent: (it) => events.push(it.event) })) {
    assert.equal(chunk.data.toString(), "begun\n");
    break;
  }
  assert.deepEqual(events, ["stdout"]);
  while ((await client.call("state")).cancelled.length < 2) await sleep(10);
}

async function aStreamHoldsNoMoreThanItsWindow(client) {
  const c = Container.attach("c", client);
  const stream = c.stream("flood");
  for (let n = 0; n < 3; n++) assert.equal((await client.call("state")).printed, 64);
  let count = 0;
  for await (const chunk of stream) count += chunk.data.length / 2;
  assert.equal(count, 1000);
  assert.equal((await stream.result).exitCode, 0);
  // A program that sends more than it may ends the connection. Nothing is taken until all of it has arrived.
  const overflow = c.stream("overflow");
  await client.call("state").catch(() => {});
  await assert.rejects(async () => {
    for await (const _ of overflow);
  }, /more than 64 events wait/);
  // The result alone: nothing of the output is held.
  const unread = c.stream("flood");
  assert.equal((await unread.result).exitCode, 0);
  await assert.rejects(unread[Symbol.asyncIterator]().next(), /discarded/);
}

/** Names are of TypeScript here and of the wire there, except the keys of maps. */
async function names(client) {
  const { container } = await client.create({ mountCwd: false, env: { MY_NAME: "a", myName: "b" }, repos: [{ url: "u", asRoot: true }] });
  const fields = (await client.call("state")).last;
  assert.deepEqual(fields, {
    operation: "create",
    mount_cwd: false,
    env: { MY_NAME: "a", myName: "b" },
    repos: [{ url: "u", as_root: true }],
  });
  assert.equal(container, "c");
  const steps = [];
  await client.create({}, { onEvent: (it) => steps.push(it) });
  assert.deepEqual(steps, [{ event: "step", step: { durationMs: 1, items: [{ exit_code: 1 }] } }]);
}

async function errorsByTheirClass(client) {
  const classes = {
    image_not_found: "NotFound",
    unknown_field: "InvalidInput",
    name_taken: "Conflict",
    busy: "Busy",
    timed_out: "TimedOut",
    engine_failed: "EngineFailed",
    of_a_later_version: "CoracleError",
  };
  for (const [code, name] of Object.entries(classes)) {
    const failed = (error) => error.constructor === coracle[name] && error.name === name && error.code === code;
    await assert.rejects(client.call("fails", { code }), failed);
  }
}

async function errorsOfTheWorkAndOfItsEnd() {
  const client = new Client({ program, env: { ...process.env, STUCK: "1" } });
  const work = async (error) => {
    if (error) throw error;
  };
  await assert.rejects(Container.using({}, () => work(), { client }), { code: "save_failed" });
  const own = new RangeError("of the work");
  await assert.rejects(Container.using({}, () => work(own), { client }), (error) => error === own);
  assert.equal(own.cause.code, "save_failed");
  // Where the error has no place for the second one, both are thrown.
  for (const first of [new Error("of the work", { cause: "its own" }), "a text"]) {
    const both = ({ errors }) => errors[0] === first && errors[1].code === "save_failed";
    await assert.rejects(Container.using({}, () => Promise.reject(first), { client }), both);
  }
  await client.close();
}

async function settings() {
  const client = new Client({ settings: { max_container: 1 } });
  await assert.rejects(client.call("list"), { code: "config_invalid" });
  await client.close();
}

async function endsOfBlocks() {
  for (const [request, isRemoved] of [[{}, true], [{ ifExists: "reuse" }, false], [{ persistent: true }, false]]) {
    const client = new Client({ program });
    await Container.using(request, async () => {}, { client });
    assert.equal((await client.call("state")).calls.includes("destroy"), isRemoved);
    await client.close();
  }
}

async function endsOfTheProgram() {
  for (const [operation, why] of [["end", /exit code 7/], ["nonsense", /cannot be read/]]) {
    const client = new Client({ program });
    for (const it of [operation, "state"]) {
      const failed = (error) => error instanceof ConnectionClosed && why.test(error.message);
      await assert.rejects(client.call(it), failed);
    }
    await client.close();
  }
  process.env.CORACLE_BIN = program;
  await assert.rejects(defaultClient().call("end"), ConnectionClosed);
  assert.deepEqual((await defaultClient().call("state")).calls, ["state"]);
}

await requestsThatCannotBeSent();
const client = new Client({ program });
await listeners(client);
await streams(client);
await aStreamHoldsNoMoreThanItsWindow(client);
await names(client);
await errorsByTheirClass(client);
await client.close();
await errorsOfTheWorkAndOfItsEnd();
await settings();
await endsOfBlocks();
await endsOfTheProgram();
clearTimeout(limit);

// One session of an agent, by the protocol's own TypeScript library: progress and cancellation included.
//
// agent_session.mjs stdio PROGRAM [WORD ...] starts the server; agent_session.mjs http URL TOKEN speaks to one. Ends with 0
// if everything was as it should be.

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/sdk/validation/ajv";

function transport([kind, first, ...words]) {
  if (kind === "stdio") return new StdioClientTransport({ command: first, args: words, env: { ...process.env } });
  const headers = { Authorization: `Bearer ${words[0]}` };
  return new StreamableHTTPClientTransport(new URL(first), { requestInit: { headers } });
}

// The text of a call that was carried out. What clients show a model in its place is not there.
async function called(client, name, args, options) {
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  assert.ok(!result.isError, JSON.stringify(result));
  assert.equal(result.structuredContent, undefined, JSON.stringify(result));
  return result.content[0].text;
}

// The library's own validator compiles every schema, and takes what the server takes.
async function tools(client) {
  const { tools: listed } = await client.listTools();
  const validator = new AjvJsonSchemaValidator();
  const checks = new Map(listed.map((it) => [it.name, validator.getValidator(it.inputSchema)]));
  for (const { outputSchema } of listed) if (outputSchema) validator.getValidator(outputSchema);
  assert.ok(checks.size >= 12, [...checks.keys()].join());
  assert.ok(checks.get("shell")({ command: "ls" }).valid);
  assert.ok(!checks.get("shell")({}).valid);
  assert.ok(checks.get("containers")({ operation: "exec", command: ["ls"] }).valid);
  assert.ok(!checks.get("containers")({ operation: "no-such" }).valid);
}

// The first call makes the machine; the next one is on the same.
async function oneMachine(client) {
  await called(client, "write_file", { path: "note.txt", content: "of the first call\n" });
  const read = await called(client, "containers", { operation: "exec", command: ["cat", "note.txt"] });
  assert.equal(read, "of the first call\n");
}

// What is printed comes while the command runs: its end is up to this side.
async function progress(client) {
  const messages = [];
  let go;
  const onprogress = ({ message }) => {
    messages.push(message);
    go ??= called(client, "write_file", { path: "go", content: "" });
  };
  const command = "echo begun; until test -e go; do sleep 0.05; done; echo done";
  const answer = await called(client, "shell", { command }, { onprogress });
  await go;
  assert.ok(messages.includes("begun"), messages.join());
  assert.equal(answer, "begun\ndone\n");
}

// The process in the container ends with the request.
async function cancellation(client) {
  const given_up = new AbortController();
  const options = { signal: given_up.signal, onprogress: () => given_up.abort("the user stops it") };
  const command = "echo $$ > id; echo begun; exec sleep 600";
  await assert.rejects(called(client, "shell", { command, timeout: 600 }, options), /the user stops it/);
  const giveUp = Date.now() + 30_000;
  while ((await called(client, "shell", { command: "test -d /proc/$(cat id)" })) === "[exit 0]") {
    assert.ok(Date.now() < giveUp, "the command runs still");
    await pause(50);
  }
}

const client = new Client({ name: "test", version: "0" });
await client.connect(transport(process.argv.slice(2)));
assert.equal(client.getServerVersion().name, "coracle");
assert.ok(client.getInstructions());
await tools(client);
await oneMachine(client);
await progress(client);
await cancellation(client);
await client.transport.terminateSession?.();
await client.close();

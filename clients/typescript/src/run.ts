#!/usr/bin/env node
// The program in this package, with the same arguments. No other program: `CORACLE_BIN` and `PATH` may name this file,
// which would start itself for ever.
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { constants } from "node:os";

import { packaged } from "./program.js";

const SIGNALS: NodeJS.Signals[] = ["SIGTERM", "SIGINT", "SIGHUP"];

function fail(why: string): never {
  console.error(`coracle: ${why}`);
  process.exit(1);
}

function start(): ChildProcess {
  try {
    return spawn(packaged, process.argv.slice(2), { stdio: "inherit" });
  } catch (error) {
    return fail((error as Error).message);
  }
}

if (!existsSync(packaged)) fail("this package has no program: install the package of this platform");
// A terminal sends its own to both processes, and a second one would end the program's cleaning up.
const pass = (signal: NodeJS.Signals) => {
  if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
};
for (const signal of SIGNALS) process.on(signal, pass);
const child = start();
child.on("error", (error) => fail(error.message));
child.on("exit", (code, signal) => {
  for (const it of SIGNALS) process.off(it, pass);
  process.exitCode = code ?? 128 + constants.signals[signal ?? "SIGKILL"];
  if (signal && SIGNALS.includes(signal)) process.kill(process.pid, signal);
});

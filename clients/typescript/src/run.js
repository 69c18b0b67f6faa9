#!/usr/bin/env node
// The program of this package, with the same arguments.
import { spawnSync } from "node:child_process";

import { findProgram } from "./program.js";

const ended = spawnSync(findProgram(), process.argv.slice(2), { stdio: "inherit" });
process.exit(ended.status ?? 1);

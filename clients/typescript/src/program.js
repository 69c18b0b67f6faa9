import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

import { ConnectionClosed } from "./errors.js";

function canRun(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** `CORACLE_BIN`, the program in this package, or `coracle` in `PATH`. */
export function findProgram() {
  if (process.env.CORACLE_BIN) return process.env.CORACLE_BIN;
  const packaged = fileURLToPath(new URL("../bin/coracle", import.meta.url));
  if (canRun(packaged)) return packaged;
  for (const directory of (process.env.PATH ?? "").split(delimiter)) {
    const path = join(directory, "coracle");
    if (directory && canRun(path)) return path;
  }
  throw new ConnectionClosed(
    "the program `coracle` was not found",
    "install the package of this platform, set CORACLE_BIN, or put `coracle` into PATH",
  );
}

import { accessSync, constants, realpathSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

import { ConnectionClosed } from "./errors.js";

/** The program in the package of a platform. */
export const packaged: string = fileURLToPath(new URL("../bin/coracle", import.meta.url));

const launcher = fileURLToPath(new URL("./run.js", import.meta.url));

/** Not the command of this package, which npm puts first in `PATH` and which starts `packaged` alone. */
function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return realpathSync(path) !== realpathSync(launcher);
  } catch {
    return false;
  }
}

/** `CORACLE_BIN`, the program in this package, or `coracle` in `PATH`. */
export function findProgram(): string {
  if (process.env.CORACLE_BIN) return process.env.CORACLE_BIN;
  if (isProgram(packaged)) return packaged;
  for (const directory of (process.env.PATH ?? "").split(delimiter)) {
    const path = join(directory, "coracle");
    if (directory && isProgram(path)) return path;
  }
  throw new ConnectionClosed(
    "the program `coracle` was not found",
    "install the package of this platform, set CORACLE_BIN, or put `coracle` into PATH",
  );
}

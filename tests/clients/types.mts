// What a program in TypeScript may write; it is compiled, and not run.

import { type CallEvent, Client, Container, CoracleError, NotFound } from "coracle-client";

export async function removedAtTheEnd(): Promise<number | null> {
  await using client = new Client({ settings: { max_containers: 100 } });
  await using c = await Container.create({ purpose: "node" }, { client });
  return (await c.exec("true")).exitCode;
}

/** The name of an event tells its fields. */
export function described(event: CallEvent): string {
  switch (event.event) {
    case "step":
      return `${event.step.name}: ${event.step.status} in ${event.step.durationMs} ms`;
    case "progress":
      return event.message;
    case "stdout":
    case "stderr":
      return event.data ?? `${event.offset}`;
  }
}

export async function typedResults(c: Container): Promise<string[]> {
  try {
    const { value } = await c.glob({ pattern: "**/*.txt" });
    const { ifExists }: { ifExists: "error" | "reuse" } = { ifExists: "reuse" };
    await Container.create({ ifExists, repos: [{ url: "https://host/a.git", asRoot: true }] });
    return (value ?? []).map((it) => it.path);
  } catch (error) {
    return [error instanceof NotFound ? "nothing" : error instanceof CoracleError ? error.code : "?"];
  }
}

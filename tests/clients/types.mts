// What a program in TypeScript may write; it is compiled, and not run.

import { Client, Container } from "coracle-client";

export async function removedAtTheEnd(): Promise<number | null> {
  await using client = new Client({ settings: { max_containers: 100 } });
  await using c = await Container.create({ purpose: "node" }, { client });
  return (await c.exec("true")).exit_code;
}

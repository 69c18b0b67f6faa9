// An evaluation: the same task in many containers at once.
//
//     node evaluation.mjs 100
//
// Each attempt gets a fork of one prepared container. IMAGE and ENGINE are optional.

import { Client, Container } from "coracle-client";

const count = Number(process.argv[2]);
const client = new Client({ engine: process.env.ENGINE });
const prepared = await Container.create({ mountCwd: false, image: process.env.IMAGE }, { client });
await prepared.write("check.sh", 'test "$(cat answer)" = $(($1 * $1))\n');

// A container is forked by one call at a time; another would be `busy`.
let forked = Promise.resolve();
function fork() {
  forked = forked.then(() => prepared.forkContainer());
  return forked;
}

/** One attempt: a candidate's answer, and whether it passes the check. */
async function attempt(number) {
  const container = await fork();
  try {
    await container.write("answer", String(number * number));
    return (await container.exec(["sh", "check.sh", String(number)])).exitCode === 0;
  } finally {
    await container.destroy();
  }
}

const begun = Date.now();
const passed = await Promise.all(Array.from({ length: count }, (_, number) => attempt(number)));
const good = passed.filter(Boolean).length;
console.log(`${good} of ${count} passed in ${((Date.now() - begun) / 1000).toFixed(1)} s`);
await prepared.destroy();
await client.close();
process.exit(good === count ? 0 : 1);

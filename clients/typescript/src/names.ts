/** A JSON value of the wire. */
export type Json = null | boolean | number | string | Json[] | JsonObject;

/** An object of the wire, with the names that it has there. */
export type JsonObject = { [name: string]: Json };

const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const camel = (name: string) => name.replace(/_+(.)/g, (_, letter: string) => letter.toUpperCase());

/** A request with the names of the wire, except the keys of its maps. */
export function toWire(request: object, maps: readonly string[] = []): object {
  return renamed(request, maps, snake, "") as object;
}

/** An answer or an event with the names of this package, except the keys of its maps. */
export function fromWire(answer: object, maps: readonly string[] = []): object {
  return renamed(answer, maps, camel, "") as object;
}

function renamed(value: unknown, maps: readonly string[], rename: (name: string) => string, path: string): unknown {
  if (maps.includes(path) || typeof value !== "object" || value === null) return value;
  if ("toJSON" in value) return value;
  if (Array.isArray(value)) return value.map((item) => renamed(item, maps, rename, path));
  const below = (name: string) => (path ? `${path}.${camel(name)}` : camel(name));
  return Object.fromEntries(Object.entries(value).map(([name, it]) => [rename(name), renamed(it, maps, rename, below(name))]));
}

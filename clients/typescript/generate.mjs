// Writes src/generated from the OpenAPI document: types and methods of all operations and tools, events, and classes of
// errors. `npm run build` and `cargo xtask generate` run it. The files are in `.gitignore`.

import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const document = JSON.parse(readFileSync(new URL("../openapi.json", import.meta.url), "utf8"));
const { schemas } = document.components;
const out = fileURLToPath(new URL("src/generated/", import.meta.url));

/** Methods of containers that `Container` has itself. */
const OWN = ["exec"];

const capital = (word) => word[0].toUpperCase() + word.slice(1);
const pascal = (name) => name.split("_").map(capital).join("");
const camel = (name) => name.replace(/_+(.)/g, (_, letter) => letter.toUpperCase());

/** Operations and tools, as they are documented. */
function callables() {
  const { schema } = document.paths["/call"].post.requestBody.content["application/json"];
  const names = schema.oneOf.map((it) => schemas[it.$ref.split("/").at(-1)].properties.operation.const);
  const tools = Object.keys(document.paths).flatMap((it) => (it.startsWith("/tools/") ? [it.slice(7)] : []));
  return [...names.map((name) => callable(name, false)), ...tools.map((name) => callable(name, true))];
}

function callable(name, isTool) {
  const { properties = {}, required = [], ...rest } = schemas[`${pascal(name)}Request`];
  const { operation, ...fields } = properties;
  const request = { ...rest, required, properties: isTool ? properties : fields };
  return { name, isTool, type: pascal(name), request, result: schemas[`${pascal(name)}Result`] };
}

const hasContainer = (it) => "container" in it.request.properties;

/** The TypeScript type of a schema. */
function typeOf(schema, indent) {
  if (!schema || schema === true) return "unknown";
  const variants = schema.anyOf ?? schema.oneOf;
  if (variants) return union(variants.map((it) => typeOf(it, indent)));
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return union(schema.enum.map((it) => JSON.stringify(it)));
  return union([schema.type ?? "unknown"].flat().map((kind) => named(kind, schema, indent)));
}

const union = (words) => [...new Set(words)].join(" | ");

function named(kind, schema, indent) {
  if (kind === "integer") return "number";
  if (kind === "array") return `Array<${typeOf(schema.items, indent)}>`;
  if (kind !== "object") return kind;
  if (schema.properties) return object(schema, indent);
  // A map, whose keys are the caller's or whose shape depends on the engine. Variables and labels are texts.
  const { additionalProperties: value = schema.items } = schema;
  return `Record<string, ${typeOf(value, indent)}>`;
}

function object({ properties = {}, required = [] }, indent) {
  // `outputId` is the former name of `output_id`, with the same value.
  const isFormer = (name) => /[A-Z]/.test(name) && name.replace(/[A-Z]/g, (it) => `_${it.toLowerCase()}`) in properties;
  const described = Object.entries(properties).filter(([name]) => !isFormer(name));
  const lines = described.map(([name, schema]) => {
    const mark = required.includes(name) ? "" : "?";
    return `${comment(schema.description, `${indent}  `)}${indent}  ${camel(name)}${mark}: ${typeOf(schema, `${indent}  `)};\n`;
  });
  return `{\n${lines.join("")}${indent}}`;
}

/** Paths of the values whose keys are not names of described fields. */
function maps(schema, path = "") {
  if (schema === true) return [path];
  if (!schema) return [];
  const kinds = [schema.type].flat();
  const isMap = !schema.properties && (kinds.includes("object") || !(schema.type ?? schema.anyOf ?? schema.oneOf));
  const own = isMap && path && !("const" in schema || schema.enum) ? [path] : [];
  const variants = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])].flatMap((it) => maps(it, path));
  const inner = Object.entries(schema.properties ?? {}).flatMap(([name, it]) => maps(it, path ? `${path}.${camel(name)}` : camel(name)));
  return [...new Set([...own, ...variants, ...maps(schema.items, path), ...inner])];
}

/** From `copyIn` the client finds `copy_in`. */
function checkNames(schema) {
  for (const [name, it] of Object.entries(schema?.properties ?? {})) {
    if (/[A-Z]/.test(name)) throw new Error(`the field \`${name}\` of a request has capitals`);
    checkNames(it);
  }
  if (schema?.items) checkNames(schema.items);
}

/** All names of fields and methods: comments have them as callers write them. */
const names = new Set();
JSON.stringify(schemas, (key, value) => {
  if (key === "properties") Object.keys(value).forEach((it) => names.add(it));
  return value;
});
for (const it of callables()) names.add(it.name);

function comment(about, indent = "") {
  if (!about) return "";
  const text = about.replace(/`(\w+)`/g, (quoted, name) => (names.has(name) ? `\`${camel(name)}\`` : quoted));
  const lines = [];
  for (const word of text.replaceAll("*/", "* /").split(/\s+/)) {
    if (lines.length > 0 && lines.at(-1).length + word.length < 110) lines.push(`${lines.pop()} ${word}`);
    else lines.push(word);
  }
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((it) => `${indent} * ${it}\n`).join("")}${indent} */\n`;
}

function classOf(name, about, methods, request, argument) {
  const text = methods.map((it) => {
    const required = (it.request.required ?? []).filter((field) => field !== "operation" && !(argument && field === "container"));
    const mark = required.length > 0 ? "" : "?";
    const body = argument ? "{ ...request, container: this.name }" : "request";
    return (
      `\n${comment(it.request.description, "  ")}` +
      `  ${camel(it.name)}(request${mark}: ${request(it)}, options?: CallOptions): Promise<${it.type}Result> {\n` +
      `    return this._${it.isTool ? "tool" : "call"}("${it.name}", ${body}, options);\n  }\n`
    );
  });
  const hidden = ["call", "tool"].map(
    (it) => `  /** @internal */\n  abstract _${it}<R>(name: string, request?: object, options?: CallOptions): Promise<R>;\n`,
  );
  const own = argument ? "  abstract readonly name: string;\n" : "";
  return `\n${comment(about)}export abstract class ${name} {\n${own}${hidden.join("")}${text.join("")}}\n`;
}

function operations() {
  const all = callables();
  let text = 'import type { CallOptions } from "../client.js";\n';
  for (const it of all) {
    text += `\n${comment(`Fields of \`${it.name}\`.`)}export interface ${it.type}Request ${object(it.request, "")}\n`;
    text += `\n${comment(`What \`${it.name}\` answers.`)}export interface ${it.type}Result ${object(it.result, "")}\n`;
    checkNames(it.request);
  }
  text += classOf("Operations", "All operations and tools.", all, (it) => `${it.type}Request`, false);
  const ofContainer = all.filter((it) => hasContainer(it) && !OWN.includes(it.name));
  const bound = (it) => `Omit<${it.type}Request, "container">`;
  text += classOf("ContainerOperations", "Those that act on one container.", ofContainer, bound, true);

  const names = schemas.Event.oneOf.map((it) => `${capital(it.properties.event.const ?? "output")}Event`);
  schemas.Event.oneOf.forEach((it, n) => {
    text += `\n${comment(it.description)}export interface ${names[n]} ${object(it, "")}\n`;
  });
  text += `\n${comment(schemas.Event.description)}export type CallEvent = ${names.join(" | ")};\n`;

  const table = Object.fromEntries(all.map((it) => [it.name, { request: maps(it.request), result: maps(it.result) }]));
  text += `\n${comment("Maps in requests and in results: their keys are not translated.")}`;
  text += `export const MAPS: Record<string, { request: string[]; result: string[] }> = ${JSON.stringify(table)};\n`;
  return `${text}\n${comment("Maps in events.")}export const EVENT_MAPS = ${JSON.stringify(maps(schemas.Event))};\n`;
}

function errors() {
  const classes = schemas.Failure["x-classes"];
  let text = 'import { CoracleError } from "../errors.js";\n';
  for (const { name, description } of classes) text += `\n${comment(description)}export class ${name} extends CoracleError {}\n`;
  text += "\nconst CLASSES: Record<string, typeof CoracleError> = {\n";
  for (const { name, codes } of classes) text += codes.map((it) => `  ${it}: ${name},\n`).join("");
  text += `};\n\n${comment("The error of an answer, in the class of its code; a `CoracleError` for a code of a later version.")}`;
  text += "export function errorOf(answer: Record<string, unknown>): CoracleError {\n";
  return `${text}  return new (CLASSES[answer.code as string] ?? CoracleError)(answer);\n}\n`;
}

mkdirSync(out, { recursive: true });
for (const [name, text] of [["operations.ts", operations()], ["errors.ts", errors()]]) {
  // Whole, or not at all: another process may compile it meanwhile.
  writeFileSync(`${out}${name}.${process.pid}`, `// Generated by generate.mjs.\n\n${text}`);
  renameSync(`${out}${name}.${process.pid}`, `${out}${name}`);
}

export * from "./client.js";
export * from "./errors.js";
export * from "./generated/errors.js";
export type * from "./generated/operations.js";
export type { Json, JsonObject } from "./names.js";

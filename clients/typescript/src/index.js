export { Client, Container, Job, OutputStream, defaultClient } from "./client.js";
export { CommandFailed, ConnectionClosed, CoracleError } from "./errors.js";

//! The proxy as a container's relay speaks with it: a real socket, and real servers on loopback behind it.

#![expect(clippy::unwrap_used, reason = "a test ends where its expectation is not met")]

mod bench;
mod egress;
mod models;
mod tokens;

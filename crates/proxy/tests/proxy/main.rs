//! Tests of the proxy over a real socket, with real servers on loopback behind it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod approval;
mod bench;
mod egress;
mod models;
mod recorded;
mod requests;
mod tokens;
mod ways_out;

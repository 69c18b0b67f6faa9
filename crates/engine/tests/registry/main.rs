//! Images pulled from a real registry, directly and through a server that misbehaves.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test ends where its expectation is not met")]

mod faults;
mod front;
mod image;
mod lab;
mod logins;
mod origins;
mod other_engine;
mod pulls;
mod redirects;
mod server;
mod tls;

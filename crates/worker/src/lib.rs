//! The agent loop that runs inside a sandbox.
//!
//! A [`Worker`] runs requests one after the other: it asks a model through the sandbox's proxy, runs the tools that the
//! model calls, and reports progress as messages. Files and commands belong to another user, reached through the guest.
//!
//! **Invariant:** the worker connects only to the address that it was given, and sends no key but the token.
//! **Invariant:** the messages of a run are numbered without a gap, and end with one result and then its usage.
//! **Invariant:** every tool call is reported, and answered once.
//! **Invariant:** a run is never repeated: only a request to a model is, and only before a tool of its reply began.

#![warn(missing_docs)]

mod agent;
pub mod arguments;
mod dial;
mod events;
mod inherited_io;
mod llm;
mod one_shot;
mod proxy_url;
mod run;
mod schema_file;
mod serve;
mod settings;
mod stop;
mod tools;

pub use dial::GuestSocket;
pub use inherited_io::{Private, take};
pub use llm::RetryPolicy;
pub use one_shot::once;
pub use proxy_url::ProxyUrl;
pub use serve::serve;
pub use settings::{Worker, WorkerSettings};

//! The agent loop that runs inside a sandbox.
//!
//! A [`Worker`] runs requests one after the other: it calls a model through the sandbox's proxy, executes the tools that
//! the model calls, and reports progress as messages. Another user owns the files and commands, reached through the
//! guest.
//!
//! **Invariant:** the worker connects only to the configured address, and sends no key except the token.
//! **Invariant:** the messages of a run are numbered without gaps, and end with one result followed by its usage.
//! **Invariant:** every tool call is reported, and has exactly one output.
//! **Invariant:** a run is never repeated: only a model request is, and only before a tool of its reply was started.

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

//! The agent loop that runs inside a sandbox.
//!
//! A [`Worker`] takes requests and does one after the other: it asks a model by the sandbox's proxy, runs the tools that the
//! model calls, and tells what happens as messages. Files and commands are those of another user, reached by the guest.
//!
//! **Invariant:** nothing but the address it was given is ever connected to, and no key but the token is ever sent.
//! **Invariant:** what a run tells is numbered without a gap, and ends with one result and then what it took.
//! **Invariant:** every call of a tool is told, and answered once.
//! **Invariant:** what has run is never run again: only a call of a model is repeated, and before any tool of it began.

#![warn(missing_docs)]

mod agent;
pub mod arguments;
mod dial;
mod llm;
mod once;
mod private;
mod proxy_url;
mod run;
mod schema_file;
mod serve;
mod settings;
mod stop;
mod teller;
mod tools;

pub use dial::GuestSocket;
pub use llm::Patience;
pub use once::once;
pub use private::{Private, take};
pub use proxy_url::ProxyUrl;
pub use serve::serve;
pub use settings::{Settings, Worker};

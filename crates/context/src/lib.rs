//! The context of operations: configuration, host, state directory, records, engines, and the current call.
//!
//! [`Context`] contains it for one call. [`Failure`] is the error of an operation, with a code and a hint; [`document`]
//! is the text of an answer before a front end shows it.
//!
//! **Invariant:** only `host` reads the environment.
//! **Invariant:** this crate creates no container, and knows no operation.

pub mod approvals;
pub mod arg_types;
pub mod audit;
pub mod config;
pub mod configured_key;
pub mod container_guest;
pub mod container_proxy;
pub mod context;
pub mod document;
pub mod egress;
pub mod engines;
pub mod event_log;
pub mod failure;
pub mod git_programs;
pub mod guest;
pub mod host;
pub mod host_identity;
pub mod host_system;
pub mod humanize;
pub mod model_text;
pub mod new_file;
pub mod planned_file;
pub mod policy;
pub mod printed_keys;
pub mod progress;
pub mod proxies;
pub mod proxy_process;
pub mod recorded;
pub mod records;
pub mod redaction;
pub mod removal;
pub mod requested;
pub mod saving_steps;
pub mod secrets;
pub mod session_env;
pub mod state;
pub mod steps;
pub mod strict;
pub mod suggest;
pub mod user_environment;
pub mod warning;
pub mod workspace_mounts;

pub use arg_types::{Script, Seconds};
pub use context::{CallContext, ConfigSource, Context, Frontend, Options};
pub use engines::{Choice, Engines};
pub use failure::{Code, Failure};
pub use host::{Host, NoHost};
pub use progress::{Amount, Event, Progress};
pub use state::StateDir;
pub use warning::Warning;

//! The environment of a session's tools: its containers, their images and mounts, and the user's commands on them.
//!
//! The tools themselves are in `coracle-workspace`.

mod backoff;
mod container_spec;
mod export;
mod maintenance;
pub mod packages;
mod prompt;
mod provider;
mod session_egress;
mod settings;

pub use self::export::{ApplyResponse, DiffResponse, ExportResponse, apply, diff, export};
pub use self::maintenance::{EndLimits, end_without_saving, recover, volume_reader};
pub use self::maintenance::{end, show};
pub use self::prompt::prompt;
pub use self::session_egress::is_open;
pub use self::settings::{SessionTools, runs_on_host};

//! Containers: their configuration and records, their start and their end.
//!
//! | module | content |
//! |---|---|
//! | `from_spec` | converts a request to a container's configuration |
//! | `directory` | files of a container on the disk |
//! | `containers` | names, look-ups, creation |
//! | `state` | whether a container runs |
//! | `plan` | the steps of PID 1 before it executes its program |
//! | `start`, `end` | start; stop and removal |
//! | `by_runtime` | the same with an OCI runtime |
//! | `exec` | commands without a guest |
//! | `files` | copies files in and out |
//! | `commit` | creates an image of a container's files |
//! | `fork` | creates a container with the files of another one |
//! | `freeze` | freezes processes while files are copied |
//! | `locked` | a container that no other call changes |
//! | `repair` | finishes or undoes operations of a process that died |
//! | `health` | results of health checks |
//! | `log` | output of PID 1 |
//! | `describe` | a container as `inspect` shows it |

pub(crate) mod by_runtime;
mod commit;
mod containers;
mod describe;
pub(crate) mod directory;
mod end;
mod exec;
mod files;
pub(crate) mod fork;
pub(crate) mod freeze;
mod from_spec;
mod health;
mod locked;
mod log;
mod plan;
mod repair;
mod start;
pub(crate) mod state;

use coracle_types::Error;

pub(crate) use self::commit::commit;
pub(crate) use self::containers::{StoredContainer, add, create, find, list, lock_names};
pub(crate) use self::describe::describe;
pub(crate) use self::end::{remove, stop};
pub(crate) use self::exec::exec;
pub(crate) use self::files::{DownloadFile, download, upload};
pub(crate) use self::fork::{ForkSource, fork};
pub(crate) use self::health::{HealthRecord, health, health_record, write_health};
pub(crate) use self::locked::LockedContainer;
pub(crate) use self::log::log;
pub(crate) use self::repair::{repair_creation, repair_freeze, repair_removal, repair_start, repair_stop};
pub(crate) use self::start::{has_process, lock, lock_at_rest, start, state_to_enter};

pub(crate) fn host_error(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |source| Error::Host { what, source }
}

fn unreadable(verb: &'static str, detail: &impl ToString) -> Error {
    Error::Unreadable { verb, detail: detail.to_string() }
}

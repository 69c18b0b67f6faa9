//! Containers: their records, what each is made of, its start and its end.
//!
//! | module | content |
//! |---|---|
//! | `from_spec` | from a request to that |
//! | `directory` | its files on the disk |
//! | `containers` | all of them: names, look-ups, creation |
//! | `state` | whether it runs |
//! | `plan` | the steps of its first process |
//! | `start`, `end` | start; stop and removal |
//! | `by_runtime` | the same by an OCI runtime |
//! | `exec` | commands without a guest |
//! | `files` | files in and out |
//! | `commit` | an image of its files |
//! | `fork` | another container with its files |
//! | `freeze` | a moment in which its processes stand still |
//! | `repair` | what a killed process left of an operation |
//! | `health` | results of health checks |
//! | `log` | what PID 1 printed |
//! | `describe` | for `inspect` |

mod by_runtime;
mod commit;
mod containers;
mod describe;
mod directory;
mod end;
mod exec;
mod files;
mod fork;
mod freeze;
mod from_spec;
mod health;
mod log;
mod plan;
mod repair;
mod start;
mod state;
mod usage;

use coracle_types::Error;

pub(crate) use self::commit::commit;
pub(crate) use self::containers::{StoredContainer, add, create, find, list, lock_names};
pub(crate) use self::describe::describe;
pub(crate) use self::end::{remove, stop};
pub(crate) use self::exec::exec;
pub(crate) use self::files::{DownloadFile, download, upload};
pub(crate) use self::fork::fork;
pub(crate) use self::health::{HealthRecord, health, health_record, write_health};
pub(crate) use self::log::log;
pub(crate) use self::repair::{repair_creation, repair_freeze, repair_removal, repair_start, repair_stop};
pub(crate) use self::start::{has_process, lock_at_rest, start, state_to_enter};
pub(crate) use self::usage::usage;

fn host_error(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |source| Error::Host { what, source }
}

fn unreadable(verb: &'static str, detail: &impl ToString) -> Error {
    Error::Unreadable { verb, detail: detail.to_string() }
}

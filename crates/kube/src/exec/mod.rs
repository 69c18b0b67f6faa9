//! Commands by the API server's `exec`, each over one WebSocket.

mod command;
mod exit_line;
mod limited;
mod process;

pub(crate) use command::{refused, run, spawn};
pub(crate) use limited::exec;
pub(crate) use process::PodProcess;

//! Installs and configures what a container needs after it is created, with a report of what was verified.
//!
//! [`prepare`] creates the exec user and the work directory and verifies both; [`setup`] runs the caller's commands.
//! Every step ends in a [`StepReport`].
//!
//! ```
//! use coracle_provision::{Status, Workspace, prepare};
//! use coracle_runtime::{ExecTarget, FakeRuntime};
//! use coracle_types::{ContainerPath, Ids};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let engine = FakeRuntime::with_programs(); // or any other engine
//!     let (_container, link) = engine.runs_guest("web").await;
//!     let workspace = Workspace { path: ContainerPath::parse("/workspace")?, bound: false, binds: vec![] };
//!     let ready = prepare(&ExecTarget::Guest(link), Ids { uid: 1000, gid: 1000 }, &workspace).await?;
//!     assert_eq!(ready.user.status, Status::Success);
//!     println!("{}: {}", ready.user.name, ready.user.detail);
//!     Ok(())
//! }
//! ```
//!
//! **Invariant:** a step is `success` only if a probe verified it; the absence of an error is no probe.
//! **Invariant:** programs of Coracle that run inside are constant; variable parts are passed as arguments.
//! **Invariant:** owner and mode of files in a bind mount are never changed.

#![warn(missing_docs)]

pub mod amplifier;
mod backup;
pub mod certs;
mod clone_source;
mod config_files;
mod context;
mod dotfiles;
pub mod env;
mod error;
mod exit;
pub mod gh;
pub mod git;
mod inline_dotfiles;
mod report;
mod repos;
mod secret_files;
mod setup;
pub mod ssh;
mod step_error;
#[cfg(test)]
mod test_support;
mod user;
mod user_setup;

pub use config_files::{FileToPut, ProtectedBinds, config_files};
pub use context::StepContext;
pub use dotfiles::{Dotfiles, dotfiles};
pub use error::{Error, Result};
pub use inline_dotfiles::{InlineFile, dotfiles_inline};
pub use report::{Report, ReportItem, Status, StepReport};
pub use repos::{RepoCopy, RepoRequest, RepoSource, repos};
pub use setup::{Setup, SetupCommand, setup};
pub use user::{Accounts, InvalidUser, UserRequest, accounts};
pub use user_setup::{UserSetupReport, Workspace, prepare};

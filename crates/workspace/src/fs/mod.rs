//! The files of a workspace, for programs.
//!
//! [`GuestFs`] works over the link of a session's container, or over the socket that a guest has for its worker.
//!
//! Paths are texts from the workspace's root: `a/b`, `/a/b` and, where the root is `/workspace`, `/workspace/a/b` are the
//! same. `.` and `..` are folded by the text alone, without a look at what `a` in `a/../b` is; what would climb above the
//! root is [`FsError::Escape`]. Names may have any character but `/` and NUL, up to 80 of them, and a path up to 16 names
//! ([`FsError::Invalid`]). Links that lead to something inside are followed, others are `Escape` or, where their target is
//! missing, [`FsError::NotFound`].

mod error;
mod git;
mod guest;
mod handle;
mod path;
mod snapshot;
mod types;

pub use self::error::{FsError, MAX_CONTENT, Result};
pub use self::handle::GuestFs;
pub use self::types::{FsEntry, FsKind, LineMatch, LineQuery, SearchResults, WriteMode, WriteOptions};

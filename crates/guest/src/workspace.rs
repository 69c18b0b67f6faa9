//! Executes the requests of tools on the files of a workspace.
//!
//! All of this code blocks, and runs on a thread for blocking calls as the caller's user.
//!
//! **Invariant:** a path is resolved from a descriptor of the workspace. The kernel never follows a link: its target is
//! resolved here, part by part, each in an open directory. So swapping names concurrently causes an error or refers to
//! another file of the workspace.
//! **Invariant:** only regular files and directories are opened for reading or writing.
//! **Invariant:** at any time, a file that is being written has its complete old content or its complete new one.
//! **Invariant:** memory does not grow with the size of the workspace.

mod change_scan;
mod deferred_sync;
mod digests;
mod disk_usage;
mod edit;
mod entry;
mod fingerprint;
mod glob;
mod grep;
mod line_search;
mod list;
mod locks;
mod read_lines;
mod read_range;
mod remove;
mod replace;
mod reply_limit;
mod stage;
mod tracker;
mod write;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use self::deferred_sync::DeferredSync;
use self::locks::Locks;
use self::tracker::FileTracker;
use crate::files::error::{FsError, OperationResult, words};
use crate::files::resolve::Root;
use crate::os::as_user::as_user;
use crate::os::blocking::CancelFlag;
use crate::os::machine::ProcessBackend;
use crate::protocol::workspace::{WorkspaceOp, WorkspaceReply, WorkspaceRequest};
use crate::protocol::{ErrorCode, RpcError};

/// Limit of tracked workspaces. A container has one.
const MAX_ROOTS: usize = 64;

/// The guest's state of its workspaces.
#[derive(Debug)]
pub(crate) struct Workspaces {
    roots: Mutex<HashMap<String, Arc<FileTracker>>>,
    locks: Locks,
    deferred: DeferredSync,
    /// Older temporary files belong to another guest.
    since: SystemTime,
}

impl Workspaces {
    pub(crate) fn new() -> Self {
        Self {
            roots: Mutex::default(),
            locks: Locks::default(),
            deferred: DeferredSync::default(),
            since: SystemTime::now(),
        }
    }

    /// Waits until deferred work is done.
    pub(crate) async fn flush(&self) {
        self.deferred.flush().await;
    }

    fn tracker(&self, root: &str) -> Result<Arc<FileTracker>, RpcError> {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tracker) = roots.get(root) {
            return Ok(tracker.clone());
        }
        if roots.len() >= MAX_ROOTS {
            return Err(RpcError::new(ErrorCode::TooMany, format!("{MAX_ROOTS} workspaces are in use already")));
        }
        Ok(roots.entry(root.to_owned()).or_default().clone())
    }
}

/// The context of one operation in a workspace.
#[derive(Debug)]
struct WorkspaceOperation<'a> {
    root: Root,
    tracker: &'a FileTracker,
    locks: &'a Locks,
    stop: &'a CancelFlag,
    deferred: &'a DeferredSync,
}

impl Workspaces {
    /// Executes the request, and returns the encoded reply. Blocks.
    pub(crate) fn execute_encoded(
        &self,
        machine: &dyn ProcessBackend,
        request: WorkspaceRequest,
        stop: &CancelFlag,
    ) -> Result<Vec<u8>, RpcError> {
        self.execute(machine, request, stop).map(reply_limit::encoded)
    }

    fn execute(
        &self,
        machine: &dyn ProcessBackend,
        request: WorkspaceRequest,
        stop: &CancelFlag,
    ) -> Result<WorkspaceReply, RpcError> {
        let ids = machine.ids(&request.user)?;
        let tracker = self.tracker(&request.root)?;
        if let WorkspaceOp::Recall { files } = request.act {
            return tracker.recall(files).map(|()| WorkspaceReply::Recalled);
        }
        as_user(&ids, || {
            let root = match Root::open(machine.root(), &request.root)? {
                Ok(root) => root,
                Err(FsError(error)) => return Ok(WorkspaceReply::Not(error)),
            };
            let Workspaces { locks, deferred, since, .. } = self;
            let work = WorkspaceOperation { root, tracker: &tracker, locks, stop, deferred };
            work.remove_leftovers(*since);
            Ok(work.execute(request.act).unwrap_or_else(|FsError(error)| WorkspaceReply::Not(error)))
        })
        .unwrap_or_else(|errno| {
            Err(RpcError::new(ErrorCode::Denied, format!("cannot act as user {}: {}", ids.uid, words(errno))))
        })
    }
}

impl WorkspaceOperation<'_> {
    fn execute(&self, operation: WorkspaceOp) -> OperationResult<WorkspaceReply> {
        match operation {
            WorkspaceOp::List { path, most } => self.list(&path, most as usize),
            WorkspaceOp::Stat { path } => self.stat(&path).map(WorkspaceReply::Found),
            WorkspaceOp::Lines { path, offset, limit, most } => {
                self.lines(&path, (offset, limit, most)).map(WorkspaceReply::Text)
            }
            WorkspaceOp::Bytes { path, offset, limit } => self.bytes(&path, offset, limit),
            WorkspaceOp::Write { path, content, how, executable, seen, tool } => {
                let write = write::Write { path: &path, how, executable, seen, tool: &tool };
                self.write(&write, &content).map(WorkspaceReply::Written)
            }
            WorkspaceOp::Edit { path, old, new, all, seen, tool } => {
                let edit = edit::Edit { path: &path, old: &old, new: &new, all, seen, tool: &tool };
                self.edit(&edit).map(WorkspaceReply::Written)
            }
            WorkspaceOp::Remove { path, within_ms, tool } => self.remove(&path, within_ms, &tool),
            WorkspaceOp::RemoveOne { path, tool } => self.remove_one(&path, &tool),
            WorkspaceOp::MakeDir { path, parents, exist_ok } => {
                self.make_dir(&path, parents, exist_ok).map(WorkspaceReply::Found)
            }
            WorkspaceOp::Glob { path, pattern, gitignore, bounds } => self.glob(&path, &pattern, gitignore, bounds),
            WorkspaceOp::Grep { path, pattern, glob, ignore_case, context, gitignore, bounds } => {
                let glob = glob.as_deref();
                let grep = grep::Grep { path: &path, pattern: &pattern, glob, ignore_case, context, gitignore };
                self.grep(&grep, bounds)
            }
            WorkspaceOp::Changed { hints, exclude, bounds, tool } => {
                self.changed(&hints, &exclude, bounds, &tool).map(WorkspaceReply::Changed)
            }
            WorkspaceOp::Sums { after, bounds } => self.sums(after.as_deref(), bounds),
            WorkspaceOp::Measure { bounds } => self.measure(bounds),
            WorkspaceOp::Stage { stage, begins, files } => {
                self.stage(&stage, begins, &files).map(|()| WorkspaceReply::Staged)
            }
            WorkspaceOp::Unstage { stage } => self.unstage(&stage).map(|()| WorkspaceReply::Staged),
            WorkspaceOp::Touched => Ok(WorkspaceReply::Touched(self.tracker.touched())),
            WorkspaceOp::Recall { .. } => Ok(WorkspaceReply::Recalled),
        }
    }
}

#[cfg(test)]
mod tests;

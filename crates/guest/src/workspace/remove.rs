//! Removes files and trees, and leftovers of an earlier guest.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, FileType, unlinkat};

use super::WorkspaceOperation;
use crate::atomic::nanoseconds;
use crate::files::error::{FsError, OperationResult};
use crate::files::resolve::ResolvedPath;
use crate::files::walk::{Temporaries, TreeWalk, WalkLimits};
use crate::files::{FinalLink, Removal};
use crate::protocol::workspace::{SearchLimits, WorkspaceErrorCode, WorkspaceReply};

/// Limits of the search for leftovers.
const SWEEP: SearchLimits = SearchLimits { most: 0, entries: 50_000, within_ms: 200 };

/// Longest duration of a removal.
const MAX_TIME: Duration = Duration::from_secs(120);

impl WorkspaceOperation<'_> {
    /// Removes a tree through descriptors, without entering mounts.
    pub(super) fn remove(&self, path: &str, within_ms: u64, tool: &str) -> OperationResult<WorkspaceReply> {
        let until = Instant::now() + Duration::from_millis(within_ms).min(MAX_TIME);
        let resolved = self.removable(path)?;
        let entry = resolved.entry.as_ref().ok_or(WorkspaceErrorCode::NotFound)?;
        let (mut files, mut directories, mut complete) = (1, 0, true);
        let mut error = None;
        if entry.is(FileType::Directory) {
            let mut removal = Removal::begin(resolved.dir.as_fd(), &resolved.name)?;
            loop {
                match removal.advance() {
                    Ok(false) => break,
                    Ok(true) if self.stop.is_set() || Instant::now() >= until => {
                        complete = false;
                        break;
                    }
                    Ok(true) => {}
                    Err(errno) => {
                        error = Some(FsError::from(errno));
                        break;
                    }
                }
            }
            (files, directories) = removal.counts();
        } else {
            unlinkat(&resolved.dir, resolved.name.as_slice(), AtFlags::empty())?;
        }
        self.record_removal(&resolved, complete && error.is_none(), tool);
        error.map_or(Ok(WorkspaceReply::Removed { files, directories, complete }), Err)
    }

    /// Removes a file, a link or an empty directory.
    pub(super) fn remove_one(&self, path: &str, tool: &str) -> OperationResult<WorkspaceReply> {
        let resolved = self.removable(path)?;
        let is_dir = resolved.entry.as_ref().ok_or(WorkspaceErrorCode::NotFound)?.is(FileType::Directory);
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&resolved.dir, resolved.name.as_slice(), flags)?;
        self.record_removal(&resolved, true, tool);
        Ok(WorkspaceReply::Removed { files: u64::from(!is_dir), directories: u64::from(is_dir), complete: true })
    }

    /// A link at the end of the path is not followed.
    fn removable(&self, path: &str) -> OperationResult<ResolvedPath> {
        let resolved = self.root.resolve(path, FinalLink::Itself, false)?;
        if resolved.is_root() {
            return Err(FsError::with_detail(WorkspaceErrorCode::Denied, "the workspace itself cannot be removed"));
        }
        Ok(resolved)
    }

    /// Marks tracked files as deleted; with `whole`, all files below the path.
    fn record_removal(&self, resolved: &ResolvedPath, whole: bool, tool: &str) {
        if let Ok(real) = str::from_utf8(&resolved.path) {
            let is_deleted = |path: &str| whole || self.root.open_path(path).is_err();
            self.tracker.removed(real, tool, is_deleted);
        }
        if whole {
            self.tracker.record_change(&resolved.path, None);
        }
    }

    /// Removes the temporary files of a guest that was killed during a write, at the first operation of this one.
    pub(super) fn remove_leftovers(&self, since: SystemTime) {
        if self.tracker.is_first() {
            // Errors are ignored: listings omit temporary files anyway.
            let temporaries = Temporaries::Removed(nanoseconds(since));
            let limits = WalkLimits { temporaries, ..WalkLimits::sorted(SWEEP) };
            let Ok(mut walk) = TreeWalk::begin(self.root.dir(), limits, None, self.stop) else { return };
            while walk.next(&|_, _| true).is_some() {}
        }
    }
}

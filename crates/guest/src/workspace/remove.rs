//! Removing files and trees, and what an earlier guest left over.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, FileType, unlinkat};

use super::WorkspaceOperation;
use crate::files::FinalLink;
use crate::files::Removal;
use crate::files::error::FsError;
use crate::files::error::OperationResult;
use crate::files::resolve::ResolvedPath;
use crate::files::walk::{Temporaries, TreeWalk, WalkLimits};
use crate::os::atomic::nanoseconds;
use crate::protocol::workspace::{SearchLimits, WorkspaceErrorCode, WorkspaceReply};

/// Limits of the search for leftovers.
const SWEEP: SearchLimits = SearchLimits { most: 0, entries: 50_000, within_ms: 200 };

/// A removal takes no longer.
const MAX_TIME: Duration = Duration::from_secs(120);

impl WorkspaceOperation<'_> {
    /// A tree goes by descriptors, on its own mount only.
    pub(super) fn remove(&self, path: &str, within_ms: u64, tool: &str) -> OperationResult<WorkspaceReply> {
        let until = Instant::now() + Duration::from_millis(within_ms).min(MAX_TIME);
        let place = self.removable(path)?;
        let there = place.entry.as_ref().ok_or(WorkspaceErrorCode::NotFound)?;
        let (mut files, mut directories, mut complete) = (1, 0, true);
        let mut trouble = None;
        if there.is(FileType::Directory) {
            let mut removal = Removal::begin(place.dir.as_fd(), &place.name)?;
            loop {
                match removal.advance() {
                    Ok(false) => break,
                    Ok(true) if self.stop.is_set() || Instant::now() >= until => {
                        complete = false;
                        break;
                    }
                    Ok(true) => {}
                    Err(errno) => {
                        trouble = Some(FsError::from(errno));
                        break;
                    }
                }
            }
            (files, directories) = removal.counts();
        } else {
            unlinkat(&place.dir, place.name.as_slice(), AtFlags::empty())?;
        }
        self.forget(&place, complete && trouble.is_none(), tool);
        trouble.map_or(Ok(WorkspaceReply::Removed { files, directories, complete }), Err)
    }

    /// Removes a file, a link or an empty directory.
    pub(super) fn remove_one(&self, path: &str, tool: &str) -> OperationResult<WorkspaceReply> {
        let place = self.removable(path)?;
        let is_dir = place.entry.as_ref().ok_or(WorkspaceErrorCode::NotFound)?.is(FileType::Directory);
        let how = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&place.dir, place.name.as_slice(), how)?;
        self.forget(&place, true, tool);
        Ok(WorkspaceReply::Removed { files: u64::from(!is_dir), directories: u64::from(is_dir), complete: true })
    }

    /// Nothing is followed at the end of the path.
    fn removable(&self, path: &str) -> OperationResult<ResolvedPath> {
        let place = self.root.resolve(path, FinalLink::Itself, false)?;
        if place.is_root() {
            return Err(FsError::with_detail(WorkspaceErrorCode::Denied, "the workspace itself is not removed"));
        }
        Ok(place)
    }

    /// Removes tracked files. `whole`: all below that path.
    fn forget(&self, place: &ResolvedPath, whole: bool, tool: &str) {
        if let Ok(real) = str::from_utf8(&place.path) {
            let gone = |it: &str| whole || self.root.open_path(it).is_err();
            self.memory.removed(real, tool, gone);
        }
        if whole {
            self.memory.met(&place.path, None);
        }
    }

    /// Removes what a guest left over that was killed while it wrote: at the first act of this one, which began then.
    pub(super) fn sweep(&self, since: SystemTime) {
        if self.memory.is_first() {
            // What cannot be swept is not seen either.
            let temporaries = Temporaries::Removed(nanoseconds(since));
            let limits = WalkLimits { temporaries, ..WalkLimits::sorted(SWEEP) };
            let Ok(mut walk) = TreeWalk::begin(self.root.dir(), limits, None, self.stop) else { return };
            while walk.next(&|_, _| true).is_some() {}
        }
    }
}

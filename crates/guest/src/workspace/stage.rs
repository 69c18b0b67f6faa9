//! Writes many files at once: into a hidden staging directory, from which they are moved to their paths together.
//!
//! The target is a workspace that is not in use yet. Even so, no link is followed, neither in the staging directory nor in
//! the workspace.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::WorkspaceOperation;
use crate::atomic::is_temporary;
use crate::files::dir::{READ, all, kind};
use crate::files::error::{FsError, OperationResult};
use crate::files::{Removal, enter};
use crate::protocol::workspace::{StagedFile, WorkspaceErrorCode};

/// Depth of nested directories, at most.
const MAX_DEPTH: usize = 128;

/// Mode of directories, and the permissions that a file may have at most.
const MODE: u32 = 0o755;

impl WorkspaceOperation<'_> {
    pub(super) fn stage(&self, stage: &str, begins: bool, files: &[StagedFile]) -> OperationResult<()> {
        if !is_temporary(stage.as_bytes()) {
            return Err(bad("invalid name of a staging directory"));
        }
        if begins {
            self.clear_stages()?;
            mkdirat(self.root.dir(), stage, Mode::from_raw_mode(0o700))?;
        }
        let dir = enter(self.root.dir().as_fd(), stage.as_bytes())?;
        // Files arrive sorted by directory, so the current directory is usually the next one's.
        let mut current: (Vec<&str>, OwnedFd) = (Vec::new(), reopen_dir(dir.as_fd())?);
        for file in files {
            let mut parts: Vec<&str> = file.path.split('/').collect();
            let is_invalid = |it: &&str| it.is_empty() || *it == "." || *it == ".." || it.contains('\0');
            if parts.len() > MAX_DEPTH || parts.iter().any(is_invalid) {
                return Err(bad("a path consists of parts joined by `/`, and none may be `.` or `..`"));
            }
            let name = parts.pop().unwrap_or_default();
            if current.0 != parts {
                let below = create_dirs(dir.as_fd(), &parts)?;
                current = (parts, below);
            }
            write(current.1.as_fd(), name, file)?;
        }
        Ok(())
    }

    pub(super) fn unstage(&self, stage: &str) -> OperationResult<()> {
        if !is_temporary(stage.as_bytes()) {
            return Err(bad("invalid name of a staging directory"));
        }
        let root = enter(self.root.dir().as_fd(), b".")?;
        let dir = enter(root.as_fd(), stage.as_bytes())?;
        merge(dir.as_fd(), root.as_fd(), 0)?;
        Ok(unlinkat(&root, stage, AtFlags::REMOVEDIR)?)
    }

    /// Removes staging directories of a guest that was killed.
    fn clear_stages(&self) -> OperationResult<()> {
        let dir = self.root.dir();
        for entry in all(dir)? {
            let entry = entry?;
            if is_temporary(&entry.name) && kind(dir, &entry) == FileType::Directory {
                let mut removal = Removal::begin(dir.as_fd(), &entry.name)?;
                while removal.advance()? {}
            }
        }
        Ok(())
    }
}

fn bad(why: &str) -> FsError {
    FsError::with_detail(WorkspaceErrorCode::Escape, why)
}

fn reopen_dir(dir: BorrowedFd<'_>) -> OperationResult<OwnedFd> {
    Ok(openat(dir, ".", READ, Mode::empty())?)
}

/// Opens a directory below, and creates its missing parts.
fn create_dirs(dir: BorrowedFd<'_>, parts: &[&str]) -> OperationResult<OwnedFd> {
    let mut current = reopen_dir(dir)?;
    for part in parts {
        match mkdirat(&current, *part, Mode::from_raw_mode(MODE)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        current = enter(current.as_fd(), part.as_bytes())?;
    }
    Ok(current)
}

fn write(dir: BorrowedFd<'_>, name: &str, staged: &StagedFile) -> OperationResult<()> {
    let how = if staged.more { OFlags::APPEND } else { OFlags::CREATE | OFlags::EXCL };
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
    let mut file = File::from(openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(&staged.content)?;
    Ok(fchmod(&file, Mode::from_raw_mode(staged.mode & MODE))?)
}

/// Moves all entries of one directory into another; directories are merged.
fn merge(from: BorrowedFd<'_>, into: BorrowedFd<'_>, depth: usize) -> OperationResult<()> {
    if depth > MAX_DEPTH {
        return Err(bad("the directory is nested too deeply"));
    }
    let entries = all(from)?.collect::<Result<Vec<_>, _>>()?;
    for entry in entries {
        let name = entry.name.as_slice();
        match renameat(from, name, into, name) {
            Ok(()) => {}
            // The image may contain a directory of that name.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                let (inner, outer) = (enter(from, name)?, enter(into, name)?);
                merge(inner.as_fd(), outer.as_fd(), depth + 1)?;
                unlinkat(from, name, AtFlags::REMOVEDIR)?;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

//! Files and directories that stand beside their target until they are complete.
//!
//! Their process holds a lock on each. One that a killed process left has no lock, and
//! [`sweep`](super::tree_sweep::sweep) removes it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use coracle_types::random_hex;
use rustix::fs::{FlockOperation, flock};
use tempfile::NamedTempFile;

/// A name for something unfinished, which nothing else has.
#[must_use]
pub fn name() -> String {
    format!(".coracle-{}.tmp", random_hex::<8>())
}

/// Whether it is such a name.
#[must_use]
pub fn is_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let digits = name.strip_prefix(b".coracle-").and_then(|rest| rest.strip_suffix(b".tmp"));
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// The same in a directory of Coracle's own, where earlier versions used other names.
#[must_use]
pub fn is_own_name(entry: &OsStr) -> bool {
    is_name(entry) || entry.as_bytes().starts_with(b".tmp")
}

/// A file that only its owner reads, beside the place that it is for.
///
/// # Errors
/// When the directory cannot be written.
pub fn file_in(dir: &Path) -> io::Result<NamedTempFile> {
    let file = tempfile::Builder::new().prefix(&name()).rand_bytes(0).tempfile_in(dir)?;
    mark_in_use(file.as_file());
    Ok(file)
}

/// Marks something unfinished as in use, until it is closed or [`unmark`]ed.
pub fn mark_in_use(open: impl AsFd) {
    // Where a file system has no locks, nothing is removed either.
    let _ = flock(open, FlockOperation::NonBlockingLockExclusive);
}

/// Takes the mark off what is finished, so that other programs can lock it.
pub fn unmark(open: impl AsFd) {
    let _ = flock(open, FlockOperation::Unlock);
}

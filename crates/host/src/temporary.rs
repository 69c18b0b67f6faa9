//! Temporary files and directories that are created beside their target until they are complete.
//!
//! Their process locks each of them. One of a killed process is not locked, and [`sweep`](super::tree_sweep::sweep)
//! removes it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use coracle_types::random_hex;
use rustix::fs::{FlockOperation, flock};
use tempfile::NamedTempFile;

/// Generates a unique name for a temporary file.
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

/// Whether it is such a name, in a directory of Coracle's own, where earlier versions used other names.
#[must_use]
pub fn is_own_name(entry: &OsStr) -> bool {
    is_name(entry) || entry.as_bytes().starts_with(b".tmp")
}

/// Creates a file that only its owner can read, in the directory of its target.
///
/// # Errors
/// If the directory cannot be written to.
pub fn file_in(dir: &Path) -> io::Result<NamedTempFile> {
    let file = tempfile::Builder::new().prefix(&name()).rand_bytes(0).tempfile_in(dir)?;
    mark_in_use(file.as_file());
    Ok(file)
}

/// Marks a temporary file as in use, until it is closed or [`unmark`]ed.
pub fn mark_in_use(open: impl AsFd) {
    // On a file system without locks, the sweep removes nothing either.
    let _ = flock(open, FlockOperation::NonBlockingLockExclusive);
}

/// Unmarks a finished file, so that other programs can lock it.
pub fn unmark(open: impl AsFd) {
    let _ = flock(open, FlockOperation::Unlock);
}

//! Files on their way between two machines: regular files, directories, and links that stay inside.
//!
//! [`Writer`] packs them for one owner, [`Unpack`] places them beneath a directory. Neither carries devices or set-id bits.
//!
//! **Invariant:** nothing is written outside the given directory, whatever an archive contains.
//! **Invariant:** bytes and entries are bounded by [`Limits`], headers by [`ReadLimits`](crate::tar::ReadLimits), and names
//! by [`MAX_PATH`].

mod unpack;
mod write;

use std::io;

use serde::Serialize;

pub use coracle_types::ArchiveError as Error;
pub use unpack::{Unpack, plain_name, unpack};
pub use write::{StreamedEntry, Writer};

/// Bytes of a name or of a link's target: the kernel takes no longer path.
pub const MAX_PATH: usize = 4096;

/// Bounds of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together.
    pub max_bytes: u64,
    /// Files, directories and links together.
    pub max_entries: u64,
}

/// Directories may be nested this deep.
const MAX_DEPTH: usize = 128;

/// Characters of a name that was left out.
const MAX_SHOWN: usize = 255;

/// Names that are reported as left out.
const MAX_SKIPPED: usize = 1000;

/// The amounts that a transfer moved, and the entries that it left out with the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TransferReport {
    /// Regular files and links.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Entries that were left out.
    pub skipped: Vec<SkippedEntry>,
}

/// Something that did not travel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedEntry {
    /// Its name within the tree, without control characters.
    pub path: String,
    /// The reason.
    pub reason: &'static str,
}

impl TransferReport {
    /// Reports something as left out. A hostile tree does not fill the memory with what was refused.
    pub fn skip(&mut self, path: &str, reason: &'static str) {
        if self.skipped.len() < MAX_SKIPPED {
            self.skipped.push(SkippedEntry { path: shown(path), reason });
        }
    }

    fn count(&mut self, limits: &Limits, bytes: u64) -> Result<(), Error> {
        self.bytes += bytes;
        if self.bytes > limits.max_bytes {
            return Err(Error::TooLarge(limits.max_bytes));
        }
        if self.files + self.dirs + self.skipped.len() as u64 > limits.max_entries {
            return Err(Error::TooMany(limits.max_entries));
        }
        Ok(())
    }
}

/// A name for a report: short, and without control characters.
#[must_use]
pub fn shown(name: &str) -> String {
    name.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect()
}

/// Whether a link that lies in `parent` (both relative to the tree) leads to something inside the tree.
fn stays_inside(parent: &str, target: &str) -> bool {
    if target.starts_with('/') || target.is_empty() {
        return false;
    }
    let mut depth = parent.split('/').filter(|it| !it.is_empty()).count();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

fn io_error(path: &str) -> impl Fn(io::Error) -> Error + '_ {
    move |source| Error::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::stays_inside;

    #[test]
    fn links_may_climb_only_as_far_as_the_tree() {
        for (parent, target) in [("", "a"), ("a", "../b"), ("a/b", "../../c"), ("", "./x/../y")] {
            assert!(stays_inside(parent, target), "{parent} -> {target}");
        }
        for (parent, target) in [("", "../a"), ("a", "../../b"), ("a", "/etc"), ("", ""), ("", "x/../../y")] {
            assert!(!stays_inside(parent, target), "{parent} -> {target}");
        }
    }
}

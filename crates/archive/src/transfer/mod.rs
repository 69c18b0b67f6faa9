//! Copies files between two hosts: regular files, directories, and links that stay inside.
//!
//! [`Writer`] packs them for one owner, [`Unpack`] unpacks them below a directory. Neither transfers devices or set-id
//! bits.
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

/// Maximum length of a name or of a link's target: the kernel's limit of a path.
pub const MAX_PATH: usize = 4096;

/// Limits of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together.
    pub max_bytes: u64,
    /// Files, directories and links together.
    pub max_entries: u64,
}

/// Maximum depth of directories.
const MAX_DEPTH: usize = 128;

/// Maximum length of a reported name, in characters.
const MAX_SHOWN: usize = 255;

/// Maximum number of names that are reported as left out.
const MAX_SKIPPED: usize = 1000;

/// The transferred amounts, and the entries that were left out with the reasons.
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

/// An entry that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedEntry {
    /// Its name within the tree, without control characters.
    pub path: String,
    /// The reason.
    pub reason: &'static str,
}

impl TransferReport {
    /// Reports an entry as left out. The report is bounded, since the tree is untrusted.
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

/// Shortens a name for a report, and removes control characters.
#[must_use]
pub fn shown(name: &str) -> String {
    name.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect()
}

/// Whether a link in `parent` leads to a path inside the tree (both relative to it).
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
    fn links_may_lead_upwards_only_within_the_tree() {
        for (parent, target) in [("", "a"), ("a", "../b"), ("a/b", "../../c"), ("", "./x/../y")] {
            assert!(stays_inside(parent, target), "{parent} -> {target}");
        }
        for (parent, target) in [("", "../a"), ("a", "../../b"), ("a", "/etc"), ("", ""), ("", "x/../../y")] {
            assert!(!stays_inside(parent, target), "{parent} -> {target}");
        }
    }
}

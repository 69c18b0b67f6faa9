//! Lists a directory.

use std::collections::BinaryHeap;

use rustix::fs::FileType;

use super::{WorkspaceOperation, entry};
use crate::files::dir::{DirEntry, entries, join};
use crate::files::error::OperationResult;
use crate::files::resolve::open_entry;
use crate::protocol::workspace::{EntryKind, WorkspaceReply};

/// Limit of entries in a reply.
const MAX_ENTRIES: usize = 100_000;

impl WorkspaceOperation<'_> {
    /// `most` bounds the memory, independent of the size of the directory.
    pub(super) fn list(&self, path: &str, most: usize) -> OperationResult<WorkspaceReply> {
        let (dir, real) = self.root.open_path(path)?;
        dir.expect_dir()?;
        let (mut least, mut counts) = (BinaryHeap::new(), Counts::default());
        for entry in entries(&dir.fd)? {
            if self.stop.is_set() {
                break;
            }
            let entry = entry?;
            counts.add(self.kind(&dir.fd, &real, &entry));
            least.push(entry.name);
            if least.len() > most.min(MAX_ENTRIES) {
                least.pop();
            }
        }
        let mut listed = Vec::new();
        for name in least.into_sorted_vec() {
            // Entries that were removed concurrently are omitted.
            if let Some(entry) = open_entry(&dir.fd, &name)? {
                listed.push(self.listed(&join(path.as_bytes(), &name), &join(&real, &name), &entry));
            }
        }
        let omitted = counts.all.saturating_sub(most.min(MAX_ENTRIES) as u64);
        Ok(WorkspaceReply::Listed { entries: listed, omitted, directories: counts.directories, files: counts.files })
    }

    fn kind(&self, dir: &impl std::os::fd::AsFd, real: &[u8], entry: &DirEntry) -> Option<EntryKind> {
        match entry.kind {
            FileType::RegularFile => return Some(EntryKind::File),
            FileType::Directory => return Some(EntryKind::Directory),
            FileType::Symlink | FileType::Unknown => {}
            _ => return Some(EntryKind::Other),
        }
        let found = open_entry(dir, &entry.name).ok()??;
        let (stat, _) = self.follow(&join(real, &entry.name), &found).ok()??;
        Some(entry::kind(&stat))
    }
}

#[derive(Debug, Default)]
struct Counts {
    all: u64,
    directories: u64,
    files: u64,
}

impl Counts {
    fn add(&mut self, kind: Option<EntryKind>) {
        self.all += 1;
        match kind {
            Some(EntryKind::Directory) => self.directories += 1,
            Some(EntryKind::File) => self.files += 1,
            _ => {}
        }
    }
}

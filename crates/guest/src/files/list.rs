//! Lists the entries of a directory.

use std::collections::BinaryHeap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, readlinkat, statat};
use rustix::io::{Errno, Result};

use super::dir::entries;
use super::entry::{self, kind};
use crate::protocol::{FileEntry, FileKind};

const MAX_ENTRIES: usize = 100_000;

/// Bytes of names and link targets, at most: limits the memory for 100,000 long links.
const MAX_TEXT: usize = 32 << 20;

/// Returns the first entries by name, and whether there are more.
pub(super) fn list(dir: &OwnedFd, limit: usize) -> Result<(Vec<FileEntry>, bool)> {
    let names = entries(dir)?.map(|it| it.map(|entry| entry.name));
    let (names, mut more) = first(names, limit.min(MAX_ENTRIES))?;
    let (mut listed, mut room) = (Vec::new(), MAX_TEXT);
    for name in names {
        let Some(entry) = entry_at(dir.as_fd(), &name)? else { continue };
        let text = entry.name.len() + entry.link.as_ref().map_or(0, String::len);
        let Some(rest) = room.checked_sub(text) else {
            more = true;
            break;
        };
        room = rest;
        listed.push(entry);
    }
    Ok((listed, more))
}

/// Returns the least names in order. The limit bounds the memory, independent of the size of the directory.
fn first(names: impl Iterator<Item = Result<Vec<u8>>>, limit: usize) -> Result<(Vec<Vec<u8>>, bool)> {
    let (mut least, mut more) = (BinaryHeap::new(), false);
    for name in names {
        least.push(name?);
        if least.len() > limit {
            least.pop();
            more = true;
        }
    }
    Ok((least.into_sorted_vec(), more))
}

/// `None` for an entry that was removed concurrently.
fn entry_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Option<FileEntry>> {
    let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat?,
    };
    if kind(&stat) != FileKind::Link {
        return Ok(Some(entry::file_entry(name, &stat, None)));
    }
    match readlinkat(dir, name, Vec::new()) {
        Ok(link) => Ok(Some(entry::file_entry(name, &stat, Some(link.as_bytes())))),
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_least_names_are_returned_in_any_order(
            names in proptest::collection::hash_set("[a-c]{1,4}", 0..40), limit in 0usize..50,
        ) {
            let mut all: Vec<Vec<u8>> = names.into_iter().map(String::into_bytes).collect();
            let (least, more) = first(all.clone().into_iter().map(Ok), limit).unwrap();
            all.sort();
            prop_assert_eq!(more, all.len() > limit);
            all.truncate(limit);
            prop_assert_eq!(least, all);
        }
    }
}

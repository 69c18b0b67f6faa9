//! Digests of a tree: of its metadata alone, and with its content.

use std::collections::HashMap;
use std::io::{self, Read as _};

use coracle_archive::tar::{EntryKind, TarEntry, Writer};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{EntryPosition, TreeSink};

/// Digests of a tree, which are equal only for equal trees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeDigests {
    /// Names, kinds, sizes, owners, modes, times, attributes, link groups.
    pub(crate) metadata: String,
    /// The same, and the content of each file.
    pub(crate) content: Option<String>,
    pub(crate) entries: u64,
    /// Bytes of the files' content.
    pub(crate) size_bytes: u64,
}

/// The source of the digests of file contents.
#[derive(Debug)]
pub(crate) enum ContentDigests {
    /// No digests of contents.
    None,
    /// Digests that were computed when the files were written, by inode.
    Known(HashMap<u64, [u8; 32]>),
    /// Reads the files.
    Read,
}

/// Computes the digests.
#[derive(Debug)]
pub(crate) struct DigestSink {
    contents: ContentDigests,
    metadata: Sha256,
    content: Sha256,
    entries: u64,
    size_bytes: u64,
}

impl DigestSink {
    pub(crate) fn new(contents: ContentDigests) -> Self {
        Self { contents, metadata: Sha256::new(), content: Sha256::new(), entries: 0, size_bytes: 0 }
    }

    pub(crate) fn finish(self) -> TreeDigests {
        let content = (!matches!(self.contents, ContentDigests::None)).then(|| hex::encode(self.content.finalize()));
        TreeDigests {
            metadata: hex::encode(self.metadata.finalize()),
            content,
            entries: self.entries,
            size_bytes: self.size_bytes,
        }
    }

    /// Adds an entry whose content has this digest.
    pub(crate) fn take_digest(&mut self, entry: &TarEntry, content: Option<[u8; 32]>) -> io::Result<()> {
        let mut headers = Vec::new();
        Writer::new(&mut headers).write_entry(entry)?;
        self.metadata.update(&headers);
        self.content.update(&headers);
        self.content.update(content.unwrap_or_default());
        self.entries += 1;
        if let EntryKind::File { size, .. } = entry.kind {
            self.size_bytes += size;
        }
        Ok(())
    }
}

impl TreeSink for DigestSink {
    fn take_entry(&mut self, entry: &TarEntry, at: EntryPosition<'_>) -> io::Result<()> {
        let has_content = matches!(entry.kind, EntryKind::File { size: 1.., .. });
        let content = match &mut self.contents {
            ContentDigests::Known(known) if has_content => known.remove(&at.inode),
            ContentDigests::Read if has_content => Some(digest_of(at)?),
            _ => None,
        };
        self.take_digest(entry, content)
    }
}

fn digest_of(at: EntryPosition<'_>) -> io::Result<[u8; 32]> {
    let (mut file, mut hash, mut buffer) = (at.open()?, Sha256::new(), vec![0; 128 * 1024]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            count => hash.update(&buffer[..count]),
        }
    }
}

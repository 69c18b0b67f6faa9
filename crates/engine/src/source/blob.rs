//! Blobs in temporary files without a name, hashed on another thread as they are written.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use hyper::body::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::manifest::MAX_LAYER;
use super::{BlobDigest, Descriptor, Result, SourceError};
use crate::store::Compression;

/// Parts of a blob that wait for the disk.
const QUEUED: usize = 16;

/// A complete blob, at its start.
#[derive(Debug)]
pub(crate) struct LayerBlob {
    pub(crate) file: File,
    pub(crate) digest: BlobDigest,
    pub(crate) size: u64,
}

impl LayerBlob {
    /// The compression that its first bytes show. Builders are known that write a wrong media type; the store verifies the
    /// uncompressed content.
    pub(crate) fn compression(&self) -> io::Result<Compression> {
        let mut head = [0; 4];
        let count = self.file.read_at(&mut head, 0)?;
        Ok(match &head[..count] {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] => Compression::Zstd,
            _ => Compression::None,
        })
    }

    /// Refuses one that is not what a descriptor names.
    pub(crate) fn check(self, expected: &Descriptor) -> Result<Self> {
        let what = || format!("layer {}", expected.digest);
        if self.size != expected.size {
            return Err(SourceError::WrongSize { what: what(), expected: expected.size, found: self.size });
        }
        if self.digest != expected.digest {
            let (expected, found) = (expected.digest.clone(), self.digest);
            return Err(SourceError::WrongDigest { what: what(), expected, found });
        }
        Ok(self)
    }

    /// Copies what a reader has, at most the limit of a layer, into a file in `scratch`. Blocks.
    pub(crate) fn copy(mut reader: impl Read, scratch: &Path) -> Result<Self> {
        let failed = || SourceError::io("cannot copy a layer");
        let mut writing = BlobFile::begin(scratch).map_err(failed())?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match reader.read(&mut buffer).map_err(failed())? {
                0 => return writing.finish().map_err(failed()),
                count => writing.push(&buffer[..count]).map_err(failed())?,
            }
            if writing.size > MAX_LAYER {
                return Err(SourceError::TooLarge { what: "layer".into(), limit: MAX_LAYER });
            }
        }
    }
}

/// A file that is being written.
struct BlobFile {
    file: File,
    hash: Sha256,
    size: u64,
}

impl BlobFile {
    fn begin(scratch: &Path) -> io::Result<Self> {
        Ok(Self { file: tempfile::tempfile_in(scratch)?, hash: Sha256::new(), size: 0 })
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    fn finish(mut self) -> io::Result<LayerBlob> {
        self.file.rewind()?;
        Ok(LayerBlob { file: self.file, digest: BlobDigest::finish(self.hash), size: self.size })
    }
}

/// Writes a blob that comes in parts.
#[derive(Debug)]
pub(crate) struct BlobWriter {
    parts: mpsc::Sender<Bytes>,
    written: JoinHandle<io::Result<LayerBlob>>,
    size: u64,
}

impl BlobWriter {
    /// Begins a file in that directory.
    pub(crate) fn begin(scratch: PathBuf) -> Self {
        let (parts, mut queue) = mpsc::channel::<Bytes>(QUEUED);
        let written = tokio::task::spawn_blocking(move || {
            let mut writing = BlobFile::begin(&scratch)?;
            while let Some(part) = queue.blocking_recv() {
                writing.push(&part)?;
            }
            writing.finish()
        });
        Self { parts, written, size: 0 }
    }

    /// Bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Appends bytes. A failure of the disk is reported by [`finish`](Self::finish): `false` says that there is one.
    pub(crate) async fn push(&mut self, part: Bytes) -> bool {
        self.size += part.len() as u64;
        self.parts.send(part).await.is_ok()
    }

    /// Waits for the disk.
    ///
    /// # Errors
    /// When a part could not be written.
    pub(crate) async fn finish(self) -> Result<LayerBlob> {
        drop(self.parts);
        let written = self.written.await.unwrap_or_else(|err| Err(io::Error::other(err)));
        written.map_err(SourceError::io("cannot write a layer"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn parts_become_one_file_of_a_known_digest() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = BlobWriter::begin(dir.path().to_owned());
        for part in ["\x1f\u{b}", "x", ""] {
            assert!(writer.push(Bytes::from_static(part.as_bytes())).await);
        }
        let blob = writer.finish().await.unwrap();
        assert_eq!((blob.size, &blob.digest), (3, &BlobDigest::from_content(b"\x1f\x0bx")));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has a name");
        let other = Descriptor::new("", BlobDigest::from_content(b"other"), 3);
        assert!(matches!(blob.check(&other), Err(SourceError::WrongDigest { .. })));
    }

    #[tokio::test]
    async fn a_disk_that_fails_is_reported_at_the_end() {
        let mut writer = BlobWriter::begin("/dev/null/nowhere".into());
        while writer.push(Bytes::from_static(b"x")).await {}
        assert!(matches!(writer.finish().await, Err(SourceError::Io { .. })));
    }

    #[test]
    fn compression_is_seen_in_the_first_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let seen = |bytes: &[u8]| LayerBlob::copy(bytes, dir.path()).unwrap().compression().unwrap();
        assert_eq!(seen(&[0x1f, 0x8b, 8, 0, 0]), Compression::Gzip);
        assert_eq!(seen(&[0x28, 0xb5, 0x2f, 0xfd, 0]), Compression::Zstd);
        assert_eq!(seen(b"usr/\0"), Compression::None);
        assert_eq!(seen(b""), Compression::None);
    }
}

//! Writes blobs to temporary files without a name, and hashes them on another thread meanwhile.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};

use coracle_archive::HashingStream;
use coracle_archive::oci::{Descriptor, LayerEncoding, MAX_LAYER};
use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::scratch::{Scratch, ScratchFile};
use super::{BlobDigest, Result, SourceError};

/// How many parts of a blob may wait to be written.
const QUEUED: usize = 16;

/// A complete blob. The file is positioned at its start.
#[derive(Debug)]
pub(crate) struct LayerBlob {
    pub(crate) file: File,
    pub(crate) digest: BlobDigest,
    pub(crate) size: u64,
}

impl LayerBlob {
    /// Detects the compression from the first bytes, because some builders write a wrong media type. The store verifies
    /// the uncompressed content.
    pub(crate) fn compression(&self) -> io::Result<LayerEncoding> {
        LayerEncoding::detect(&self.file)
    }

    /// Compares size and digest with a descriptor.
    pub(crate) fn check(self, expected: &Descriptor) -> Result<Self> {
        expected.check_found(&format!("layer {}", expected.digest), self.size, &self.digest)?;
        Ok(self)
    }

    /// Copies a reader's content to a file in `scratch`. Fails if it exceeds the limit of a layer. Blocks.
    pub(crate) fn copy(mut reader: impl Read, scratch: &Scratch) -> Result<Self> {
        let failed = || SourceError::io("cannot copy a layer");
        let mut writing = BlobFile::new(scratch.create_file().map_err(failed())?);
        let mut buffer = vec![0; 256 << 10];
        loop {
            match reader.read(&mut buffer).map_err(failed())? {
                0 => return finished(writing).map_err(failed()),
                count => writing.write_all(&buffer[..count]).map_err(failed())?,
            }
            if writing.size() > MAX_LAYER {
                return Err(SourceError::too_large("layer", MAX_LAYER));
            }
        }
    }
}

/// A file that is being written.
type BlobFile = HashingStream<ScratchFile>;

fn finished(writing: BlobFile) -> io::Result<LayerBlob> {
    let (ScratchFile { mut file, .. }, digest, size) = writing.finish();
    file.rewind()?;
    Ok(LayerBlob { file, digest, size })
}

/// Writes a blob that arrives in parts.
#[derive(Debug)]
pub(crate) struct BlobWriter {
    parts: mpsc::Sender<Bytes>,
    written: JoinHandle<io::Result<LayerBlob>>,
    size: u64,
}

impl BlobWriter {
    /// Creates the file.
    pub(crate) fn begin(scratch: Scratch) -> Self {
        let (parts, mut queue) = mpsc::channel::<Bytes>(QUEUED);
        let written = tokio::task::spawn_blocking(move || {
            let mut writing = BlobFile::new(scratch.create_file()?);
            while let Some(part) = queue.blocking_recv() {
                writing.write_all(&part)?;
            }
            finished(writing)
        });
        Self { parts, written, size: 0 }
    }

    /// The number of bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Appends bytes. Returns `false` if writing has failed; [`finish`](Self::finish) returns the error.
    pub(crate) async fn push(&mut self, part: Bytes) -> bool {
        self.size += part.len() as u64;
        self.parts.send(part).await.is_ok()
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// If a part could not be written.
    pub(crate) async fn finish(self) -> Result<LayerBlob> {
        drop(self.parts);
        let written = self.written.await.unwrap_or_else(|err| Err(io::Error::other(err)));
        written.map_err(SourceError::io("cannot write a layer"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use coracle_archive::oci::ImageError;

    use super::*;
    use crate::cancel::CancelFlag;

    fn scratch(dir: &tempfile::TempDir) -> Scratch {
        Scratch::new(dir.path().to_owned(), CancelFlag::NEVER)
    }

    #[test]
    fn a_copy_stops_when_the_disk_is_full_or_the_copy_is_cancelled() {
        let reason = |scratch: &Scratch| match LayerBlob::copy(io::repeat(0), scratch) {
            Err(SourceError::Io { source, .. }) => source.to_string(),
            other => panic!("{other:?}"),
        };
        if let Some(full) = crate::write_guard::full_file_system() {
            let dir = format!("/proc/self/fd/{}", full.as_raw_fd());
            let reason = reason(&Scratch::new(dir.into(), CancelFlag::NEVER));
            assert!(reason.starts_with("no space left for the image"), "{reason}");
        }
        let (dir, cancel) = (tempfile::tempdir().unwrap(), CancelFlag::new().unwrap());
        let scratch = Scratch::new(dir.path().to_owned(), cancel.clone());
        std::thread::scope(|scope| {
            let copying = scope.spawn(|| reason(&scratch));
            drop(cancel.cancel_on_drop());
            assert_eq!(copying.join().unwrap(), "it was cancelled");
        });
    }

    #[tokio::test]
    async fn parts_become_one_file_with_a_digest() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = BlobWriter::begin(scratch(&dir));
        for part in ["\x1f\u{b}", "x", ""] {
            assert!(writer.push(Bytes::from_static(part.as_bytes())).await);
        }
        let blob = writer.finish().await.unwrap();
        assert_eq!((blob.size, &blob.digest), (3, &BlobDigest::from_content(b"\x1f\x0bx")));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has a name");
        let other = Descriptor::new("", BlobDigest::from_content(b"other"), 3);
        assert!(matches!(blob.check(&other), Err(SourceError::Image(ImageError::WrongDigest { .. }))));
    }

    #[tokio::test]
    async fn a_failed_write_is_reported_at_the_end() {
        let mut writer = BlobWriter::begin(Scratch::new("/dev/null/nowhere".into(), CancelFlag::NEVER));
        while writer.push(Bytes::from_static(b"x")).await {}
        assert!(matches!(writer.finish().await, Err(SourceError::Io { .. })));
    }

    #[test]
    fn compression_is_detected_from_the_first_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let seen = |bytes: &[u8]| LayerBlob::copy(bytes, &scratch(&dir)).unwrap().compression().unwrap();
        assert_eq!(seen(&[0x1f, 0x8b, 8, 0, 0]), LayerEncoding::Gzip);
        assert_eq!(seen(&[0x28, 0xb5, 0x2f, 0xfd, 0]), LayerEncoding::Zstd);
        // The first frame is skippable, as in `zstd:chunked` and seekable archives.
        assert_eq!(seen(b"\x50\x2a\x4d\x18\x03\0\0\0abc"), LayerEncoding::Zstd);
        assert_eq!(seen(b"usr/\0"), LayerEncoding::Plain);
        assert_eq!(seen(b""), LayerEncoding::Plain);
    }
}

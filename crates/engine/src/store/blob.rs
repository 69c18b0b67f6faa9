//! Decompresses, counts and hashes the blob of a layer, and sends it to the process that unpacks it.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use coracle_archive::oci::LayerEncoding;
use sha2::{Digest as _, Sha256};

use super::zstd::ZstdReader;
use super::{DiffId, LayerRefusal};
use crate::write_guard::WriteGuard;

/// Bytes that are copied at once.
const BUFFER: usize = 256 * 1024;

/// How sending a blob ended.
#[derive(Debug)]
pub(super) enum FeedEnd {
    /// All of it was received; with the digest of the uncompressed archive.
    Done(DiffId),
    /// The receiver stopped reading.
    Stopped,
    Refused(LayerRefusal),
    Io(io::Error),
}

/// A blob, and the limit of its uncompressed size.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) file: File,
    pub(super) compression: LayerEncoding,
    pub(super) max_bytes: u64,
}

impl Blob {
    /// Sends the uncompressed archive. The guard is for the directory into which it is unpacked.
    pub(super) fn feed(self, to: &UnixStream, guard: WriteGuard) -> FeedEnd {
        let end = self.feed_all(to, guard).unwrap_or_else(FeedEnd::Io);
        // Shut down explicitly: the receiver may be a process that inherited this end, so closing it would not end the stream.
        let _ = to.shutdown(Shutdown::Write);
        end
    }

    fn feed_all(self, mut to: &UnixStream, mut guard: WriteGuard) -> io::Result<FeedEnd> {
        let mut archive = decompress(self.file, self.compression)?;
        let (mut hash, mut count, mut buffer) = (Sha256::new(), 0u64, vec![0; BUFFER]);
        loop {
            let read = match archive.read(&mut buffer) {
                Ok(0) => return Ok(FeedEnd::Done(DiffId::finish(hash))),
                Ok(read) => read,
                Err(err) if is_of_content(&err) => {
                    return Ok(FeedEnd::Refused(LayerRefusal::Unreadable(err.to_string())));
                }
                Err(err) => return Err(err),
            };
            count += read as u64;
            if count > self.max_bytes {
                return Ok(FeedEnd::Refused(LayerRefusal::TooLarge { what: "bytes".into(), limit: self.max_bytes }));
            }
            hash.update(&buffer[..read]);
            match to.write_all(&buffer[..read]) {
                Err(err) if err.kind() == io::ErrorKind::BrokenPipe => return Ok(FeedEnd::Stopped),
                done => done?,
            }
            guard.written(read as u64)?;
        }
    }
}

/// The uncompressed content of a file.
pub(super) fn decompress(file: File, compression: LayerEncoding) -> io::Result<Box<dyn Read>> {
    let file = BufReader::with_capacity(BUFFER, file);
    Ok(match compression {
        LayerEncoding::Plain => Box::new(file),
        // Layers for lazy loading consist of many gzip members.
        LayerEncoding::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        LayerEncoding::Zstd => Box::new(ZstdReader::new(file)),
    })
}

/// Whether an error is due to the content of a blob, and not to the disk.
fn is_of_content(err: &io::Error) -> bool {
    err.raw_os_error().is_none()
}

//! Decompresses Zstandard streams of one or several frames.

use std::fmt;
use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes that are decoded at once.
const STEP: usize = 128 * 1024;

/// The uncompressed content of a stream.
pub(super) struct ZstdReader<R> {
    source: R,
    decoder: FrameDecoder,
    /// Whether it is within a frame.
    begun: bool,
}

impl<R: BufRead> ZstdReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), begun: false }
    }

    /// Reads headers up to that of a frame with content. Returns `false` at the end of the stream.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.begun = true;
                    return Ok(true);
                }
                // Images for lazy loading have their table of contents in such frames.
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.source).take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(err) => return Err(invalid(&err)),
            }
        }
        Ok(false)
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.begun = false;
        match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(declared), Some(found)) if declared != found => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "the sum of a frame is wrong"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.begun && !self.begin_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let step = BlockDecodingStrategy::UptoBytes(STEP);
                self.decoder.decode_blocks(&mut self.source, step).map_err(|err| invalid(&err))?;
            }
            let count = Read::read(&mut self.decoder, buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.end_frame()?;
        }
    }
}

impl<R> fmt::Debug for ZstdReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZstdReader").field("begun", &self.begun).finish_non_exhaustive()
    }
}

fn invalid(err: &FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, err.to_string())
}

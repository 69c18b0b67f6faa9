//! Standard output, as bytes.

use std::io::{self, Write};

/// Standard output in place of a path of the host.
pub(super) const STDOUT: &str = "-";

/// Bytes as they came: what a command prints is for the person's terminal or pipe, colours included.
pub(super) fn out(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

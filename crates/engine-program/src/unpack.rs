//! Archives for an engine.

use std::fs::File;
use std::io::{Read, Seek, Write};

use coracle_types::{Error, Result};

/// An engine as root unpacks a compressed archive with programs that it chooses. Coracle's archives are never
/// compressed.
pub fn unpacked(mut tar: File) -> Result<File> {
    let refuse = |source| Error::Host { what: "cannot read the archive".into(), source };
    let mut magic = [0; 4];
    tar.rewind().map_err(refuse)?;
    let count = tar.read(&mut magic).map_err(refuse)?;
    tar.rewind().map_err(refuse)?;
    let compressed: [&[u8]; 4] = [&[0x1f, 0x8b], b"BZh", &[0xfd, b'7', b'z'], &[0x28, 0xb5, 0x2f, 0xfd]];
    if compressed.iter().any(|it| magic[..count].starts_with(it)) {
        return Err(refuse(std::io::Error::other("it is compressed")));
    }
    tar.flush().map_err(refuse)?;
    Ok(tar)
}

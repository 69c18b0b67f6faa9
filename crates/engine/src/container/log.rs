//! Reads the log of a container: the output of PID 1.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use coracle_types::Result;

use super::containers::StoredContainer;
use super::host_error;

/// Returns the end of the log, at most `max_bytes`.
pub(crate) fn log(container: &StoredContainer, max_bytes: usize) -> Result<Vec<u8>> {
    let mut file = match File::open(container.dir.log_file()) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(host_error("cannot read the log of the container"))?,
    };
    tail(&mut file, max_bytes).map_err(host_error("cannot read the log of the container"))
}

/// Skips leading zeros: the guest punches a hole into the beginning of a long log.
fn tail(file: &mut File, max_bytes: usize) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max_bytes as u64)))?;
    let mut bytes = Vec::new();
    file.take(max_bytes as u64).read_to_end(&mut bytes)?;
    let hole = bytes.iter().take_while(|it| **it == 0).count();
    Ok(bytes.split_off(hole))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_end_is_read_without_the_hole_before_it() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"one\ntwo\n").unwrap();
        assert_eq!(tail(&mut file, 4).unwrap(), b"two\n");
        assert_eq!(tail(&mut file, 1 << 12).unwrap(), b"one\ntwo\n");
        assert_eq!(tail(&mut file, 0).unwrap(), b"");
    }
}

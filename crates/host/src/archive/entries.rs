//! Goes through an untrusted tar. What its headers make a reader hold in memory is bounded here, for all readers.
//!
//! The `tar` crate reads long names and extension headers whole, and an archive says itself how long they are.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::rc::Rc;

/// Bytes of all headers of one entry: its own, long names, extensions and tables of holes.
const MAX_HEADERS: u64 = 1 << 20;

/// Bytes of a name or of a link's target: the kernel takes no longer path.
pub const MAX_PATH: usize = 4096;

/// An entry of an archive that [`for_each_entry`] goes through.
pub type UntrustedEntry<'a> = tar::Entry<'a, HeaderLimit>;

/// Calls `visit` with each entry of an archive, from the file's present offset on.
///
/// # Errors
/// The first error of `visit`; an archive that cannot be read, breaks off, or has more than 1 MiB of headers for one entry.
pub fn for_each_entry<E: From<io::Error>>(
    tar: File,
    mut visit: impl FnMut(&mut UntrustedEntry<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (begin, end) = ((&tar).stream_position()?, tar.metadata()?.len());
    let left = Rc::new(Cell::new(u64::MAX));
    let mut archive = tar::Archive::new(HeaderLimit { tar: BufReader::new(tar), left: Rc::clone(&left) });
    // Content that was not read is skipped by a seek, so that between two entries only headers are read.
    let mut entries = archive.entries_with_seek()?;
    loop {
        left.set(MAX_HEADERS);
        let Some(entry) = entries.next() else { return Ok(()) };
        let mut entry = entry?;
        left.set(u64::MAX);
        // A seek beyond the end is no error, and neither is content that is short.
        let content_end = entry.raw_file_position().saturating_add(stored_size(&entry)?);
        if begin.saturating_add(content_end) > end {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive breaks off").into());
        }
        visit(&mut entry)?;
    }
}

/// Bytes that an entry takes in the archive: a file with holes is longer than they are.
fn stored_size(entry: &UntrustedEntry<'_>) -> io::Result<u64> {
    if entry.header().entry_type().is_gnu_sparse() { entry.header().entry_size() } else { Ok(entry.size()) }
}

/// A reader that fails when more is read than is left.
#[derive(Debug)]
pub struct HeaderLimit {
    tar: BufReader<File>,
    left: Rc<Cell<u64>>,
}

impl Read for HeaderLimit {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.tar.read(buffer)?;
        let left = self.left.get().checked_sub(count as u64);
        let too_long = || io::Error::other(format!("one entry has more than {MAX_HEADERS} bytes of headers"));
        self.left.set(left.ok_or_else(too_long)?);
        Ok(count)
    }
}

impl Seek for HeaderLimit {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if let SeekFrom::Current(offset) = to {
            // Unlike a plain seek, this keeps what is in the buffer.
            self.tar.seek_relative(offset)?;
            return self.tar.stream_position();
        }
        self.tar.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// The headers of one entry, the first of which says that it is that long.
    fn archive(kind: tar::EntryType, size: u64) -> File {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_cksum();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.set_len(512 + size.next_multiple_of(512)).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_path("file").unwrap();
        header.set_size(0);
        header.set_cksum();
        file.write_all(header.as_bytes()).unwrap();
        file.write_all(&[0; 1024]).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn no_header_is_read_beyond_its_bound() {
        use tar::EntryType::{GNULongLink, GNULongName, XHeader};
        for kind in [GNULongLink, GNULongName, XHeader] {
            let mut seen = 0;
            // Without a bound this would take as much memory as the archive says.
            let read = for_each_entry(archive(kind, 1 << 40), |_| {
                seen += 1;
                Ok::<_, io::Error>(())
            });
            let words = read.unwrap_err().to_string();
            assert!(words.contains("more than 1048576 bytes of headers") && seen == 0, "{kind:?}: {words}");
            for_each_entry(archive(kind, 4096), |_| Ok::<_, io::Error>(())).unwrap();
        }
    }

    #[test]
    fn content_counts_for_no_header_whether_it_is_read_or_not() {
        let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
        for name in ["a", "b", "c"] {
            let mut header = tar::Header::new_gnu();
            header.set_size(3 << 20);
            builder.append_data(&mut header, name, io::repeat(b'x').take(3 << 20)).unwrap();
        }
        let mut file = builder.into_inner().unwrap();
        file.rewind().unwrap();
        let mut sizes = Vec::new();
        let visit = |entry: &mut UntrustedEntry<'_>| {
            let is_read = entry.path()?.as_os_str() != "b";
            sizes.push(if is_read { io::copy(entry, &mut io::sink())? } else { 0 });
            Ok::<_, io::Error>(())
        };
        for_each_entry(file, visit).unwrap();
        assert_eq!(sizes, [3 << 20, 0, 3 << 20]);
    }
}

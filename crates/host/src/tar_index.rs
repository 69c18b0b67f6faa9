//! Where the files of an uncompressed tar lie. No content is read but that of extension headers.
//!
//! **Invariant:** a tar is hostile data: entries, extension headers and paths are bounded, and no path leads outside of it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use tar::{EntryType, Header};

type Result<T, E = TarIndexError> = std::result::Result<T, E>;

const BLOCK: u64 = 512;

/// Entries of one archive. Of an image with 500 layers it has about 2,000.
const MAX_ENTRIES: usize = 20_000;

/// Bytes of a path or of a link's target. All of them stay in memory.
const MAX_PATH: usize = 4096;

/// Bytes of one extension header.
const MAX_EXTENSION: u64 = 1 << 20;

/// Links that lead to one another: `docker save` writes one for a layer that it wrote before.
const MAX_LINKS: usize = 8;

/// A tar that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TarIndexError {
    /// It is another kind of file.
    #[error("it is no tar, or a compressed one")]
    NotTar,
    /// A header is wrong, or the file ends too early.
    #[error("{0}")]
    Malformed(String),
    /// The system refused.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
}

/// The files of an archive by their paths.
#[derive(Clone, Debug)]
pub struct TarIndex {
    file: Arc<File>,
    entries: Arc<HashMap<String, TarEntry>>,
}

/// A part of a file, read from its start without moving the file's offset.
#[derive(Clone, Debug)]
pub struct FileSpan {
    file: Arc<File>,
    offset: u64,
    size: u64,
}

#[derive(Clone, Debug)]
enum TarEntry {
    File { offset: u64, size: u64 },
    Link(String),
}

/// What extension headers say of the entry behind them.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    /// Its content does not lie in the archive as it is.
    has_holes: bool,
}

impl FileSpan {
    /// The first `size` bytes of a file.
    pub(crate) fn start_of(file: File, size: u64) -> Self {
        Self { file: Arc::new(file), offset: 0, size }
    }

    /// Bytes that are left to read.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Read for FileSpan {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.size).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..most], self.offset)?;
        if count == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.offset += count as u64;
        self.size -= count as u64;
        Ok(count)
    }
}

impl TarIndex {
    /// Reads the headers of an uncompressed archive. Entries that are neither files nor links are passed over, and so are
    /// those with paths that lead outside. Blocks.
    ///
    /// # Errors
    /// [`TarIndexError`].
    pub fn read(file: File) -> Result<Self> {
        let length = file.metadata()?.len();
        let mut entries = HashMap::new();
        let (mut at, mut count, mut extensions) = (0, 0, Extensions::default());
        while let Some(header) = header_at(&file, at)? {
            count += 1;
            if count > MAX_ENTRIES {
                return Err(wrong(format_args!("it has more than {MAX_ENTRIES} entries")));
            }
            let kind = header.entry_type();
            let own = if is_header_only(kind) { 0 } else { header.entry_size().map_err(wrong)? };
            let size = extensions.size.filter(|_| !is_extension(kind) && !is_header_only(kind)).unwrap_or(own);
            let offset = at + BLOCK;
            let end = offset.checked_add(size).filter(|it| *it <= length).ok_or_else(|| wrong("it breaks off"))?;
            if is_extension(kind) {
                extensions.add(kind, &FileSpan { file: Arc::new(file.try_clone()?), offset, size })?;
            } else {
                let said = std::mem::take(&mut extensions);
                entries.extend(indexed(&header, said, TarEntry::File { offset, size }));
            }
            at = end.checked_next_multiple_of(BLOCK).ok_or_else(|| wrong("it breaks off"))?;
        }
        Ok(Self { file: Arc::new(file), entries: Arc::new(entries) })
    }

    /// A file of the archive, also by links within it. `None` if it has none of that path.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<FileSpan> {
        let mut path = normalize(path)?;
        for _ in 0..MAX_LINKS {
            match self.entries.get(&path)? {
                TarEntry::File { offset, size } => {
                    return Some(FileSpan { file: Arc::clone(&self.file), offset: *offset, size: *size });
                }
                TarEntry::Link(target) => path.clone_from(target),
            }
        }
        None
    }
}

impl Extensions {
    fn add(&mut self, kind: EntryType, content: &FileSpan) -> Result<()> {
        if content.size > MAX_EXTENSION {
            return Err(wrong(format_args!("it has more than {MAX_EXTENSION} bytes in an extension header")));
        }
        let mut bytes = Vec::new();
        content.clone().read_to_end(&mut bytes)?;
        match kind {
            EntryType::GNULongName => self.path = Some(without_end(bytes)),
            EntryType::GNULongLink => self.link = Some(without_end(bytes)),
            EntryType::XHeader => {
                for it in tar::PaxExtensions::new(&bytes) {
                    let it = it.map_err(wrong)?;
                    match it.key_bytes() {
                        b"path" => self.path = Some(it.value_bytes().to_vec()),
                        b"linkpath" => self.link = Some(it.value_bytes().to_vec()),
                        b"size" => self.size = Some(it.value().map_err(wrong)?.parse().map_err(wrong)?),
                        key => self.has_holes |= key.starts_with(b"GNU.sparse."),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A file or link with its path. Others are passed over, and so are those that lead outside, and files with holes.
fn indexed(header: &Header, said: Extensions, content: TarEntry) -> Option<(String, TarEntry)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok().filter(|it| it.len() <= MAX_PATH);
    let path = normalize(&text(said.path.unwrap_or_else(|| header.path_bytes().into_owned()))?)?;
    let target = || text(said.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned))?);
    let entry = match header.entry_type() {
        EntryType::Regular | EntryType::Continuous if !said.has_holes => content,
        EntryType::Link => TarEntry::Link(normalize(&target()?)?),
        EntryType::Symlink => {
            let dir = path.rsplit_once('/').map_or("", |it| it.0);
            TarEntry::Link(normalize(&format!("{dir}/{}", target()?))?)
        }
        _ => return None,
    };
    Some((path, entry))
}

fn is_extension(kind: EntryType) -> bool {
    matches!(kind, EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader | EntryType::XGlobalHeader)
}

/// Links, directories and devices have no content, whatever their size says.
fn is_header_only(kind: EntryType) -> bool {
    use EntryType::{Block, Char, Directory, Fifo, Link, Symlink};
    matches!(kind, Link | Symlink | Char | Block | Directory | Fifo)
}

/// The header at an offset; none at the end of the archive.
fn header_at(file: &File, at: u64) -> Result<Option<Header>> {
    let mut block = [0; BLOCK as usize];
    match file.read_exact_at(&mut block, at) {
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof && at > 0 => return Ok(None),
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Err(TarIndexError::NotTar),
        other => other?,
    }
    if block.iter().all(|it| *it == 0) {
        return Ok(None);
    }
    let header = Header::from_byte_slice(&block);
    // The checksum is over the header with blanks in its own place.
    let sum: u32 =
        block.iter().enumerate().map(|(at, it)| u32::from(if (148..156).contains(&at) { b' ' } else { *it })).sum();
    match header.cksum() {
        Ok(expected) if expected == sum => Ok(Some(header.clone())),
        _ if at == 0 => Err(TarIndexError::NotTar),
        _ => Err(wrong("a header has a wrong checksum")),
    }
}

fn wrong(why: impl std::fmt::Display) -> TarIndexError {
    TarIndexError::Malformed(why.to_string())
}

/// A name ends at its first zero byte.
fn without_end(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|it| *it == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// A path without `.` and `..`. `None` for one that leads outside.
fn normalize(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            other => parts.push(other),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn archive(entries: &[(&str, tar::EntryType, &str)]) -> File {
        let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
        for (path, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            if matches!(kind, tar::EntryType::Regular) {
                header.set_size(content.len() as u64);
                builder.append_data(&mut header, path, content.as_bytes()).unwrap();
            } else {
                header.set_size(0);
                builder.append_link(&mut header, path, content).unwrap();
            }
        }
        builder.into_inner().unwrap()
    }

    fn read(index: &TarIndex, path: &str) -> Option<String> {
        let mut text = String::new();
        index.find(path)?.read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[test]
    fn files_are_found_through_links_within_the_archive() {
        use tar::EntryType::{Link, Regular, Symlink};
        let index = TarIndex::read(archive(&[
            ("./a/layer.tar", Regular, "first"),
            ("b/layer.tar", Symlink, "../a/layer.tar"),
            ("c", Link, "b/layer.tar"),
            ("out", Symlink, "../../etc/passwd"),
            ("loop", Symlink, "loop"),
            ("d", Regular, "last"),
        ]))
        .unwrap();
        for (path, content) in [("a/layer.tar", "first"), ("/b/layer.tar", "first"), ("c", "first"), ("d", "last")] {
            assert_eq!(read(&index, path).as_deref(), Some(content), "{path}");
        }
        for absent in ["out", "loop", "e", "../d", "a"] {
            assert!(index.find(absent).is_none(), "{absent}");
        }
    }

    fn malformed(file: File) -> String {
        match TarIndex::read(file) {
            Err(TarIndexError::Malformed(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Such a header would be read into memory whole.
    #[test]
    fn a_large_extension_header_is_refused() {
        for kind in [tar::EntryType::GNULongName, tar::EntryType::XHeader] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(2 << 20);
            header.set_cksum();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(header.as_bytes()).unwrap();
            file.set_len(512 + (2 << 20)).unwrap();
            assert_eq!(malformed(file), "it has more than 1048576 bytes in an extension header");
        }
    }

    #[test]
    fn a_size_that_is_no_number_is_refused() {
        let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
        builder.append_pax_extensions([("size", &b"many"[..])]).unwrap();
        assert!(malformed(builder.into_inner().unwrap()).contains("invalid digit"));
    }

    #[test]
    fn a_link_has_no_content_and_a_file_with_holes_is_passed_over() {
        let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Link);
        link.set_size(9);
        builder.append_link(&mut link, "link", "file").unwrap();
        builder.append_pax_extensions([("GNU.sparse.major", &b"1"[..])]).unwrap();
        for path in ["sparse", "file"] {
            let mut header = tar::Header::new_gnu();
            header.set_size(4);
            builder.append_data(&mut header, path, &b"text"[..]).unwrap();
        }
        let index = TarIndex::read(builder.into_inner().unwrap()).unwrap();
        assert_eq!((read(&index, "sparse"), read(&index, "link")), (None, Some("text".into())));
    }

    #[test]
    fn long_paths_are_passed_over() {
        let path = |length: usize| ["a"; 10_000].join("/")[..length].to_owned();
        let (short, long) = (path(MAX_PATH - 1), path(MAX_PATH + 1));
        let regular = tar::EntryType::Regular;
        let index = TarIndex::read(archive(&[(&short, regular, "1"), (&long, regular, "2")])).unwrap();
        assert_eq!((read(&index, &short), read(&index, &long)), (Some("1".into()), None));
    }

    #[test]
    fn entries_count_also_if_they_are_passed_over() {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Fifo);
        header.set_path("fifo").unwrap();
        header.set_mode(0o644);
        header.set_size(0);
        header.set_cksum();
        let many = |count: usize| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&header.as_bytes().repeat(count)).unwrap();
            file
        };
        assert_eq!(malformed(many(MAX_ENTRIES + 1)), "it has more than 20000 entries");
        assert!(TarIndex::read(many(MAX_ENTRIES)).unwrap().entries.is_empty());
    }

    #[test]
    fn an_archive_that_breaks_off_within_a_file_is_malformed() {
        let file = archive(&[("a", tar::EntryType::Regular, "content")]);
        file.set_len(512 + 3).unwrap();
        assert_eq!(malformed(file), "it breaks off");
    }

    #[test]
    fn what_is_no_archive_is_told_apart() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 2000]).unwrap();
        assert!(matches!(TarIndex::read(file), Err(TarIndexError::NotTar)));
    }
}

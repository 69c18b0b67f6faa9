//! Locates the files in an uncompressed tar, reading no content except extension headers.
//!
//! **Invariant:** a tar is untrusted: entries, extension headers and paths are bounded, and no path leads out of it.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use crate::tar::{EntryKind, FileSpan, ReadError, ReadLimits, Reader, TarEntry};

/// Maximum number of entries. An image with 500 layers has about 2,000.
const MAX_ENTRIES: u64 = 20_000;

/// Maximum length of a path or of a link's target. All of them stay in memory.
const MAX_PATH: usize = 4096;

/// Maximum number of chained links: `docker save` writes one for a layer that it wrote before.
const MAX_LINKS: usize = 8;

/// The files of an archive by their paths.
#[derive(Clone, Debug)]
pub struct TarIndex(Arc<HashMap<String, IndexedEntry>>);

#[derive(Clone, Debug)]
enum IndexedEntry {
    File(FileSpan),
    Link(String),
}

impl TarIndex {
    /// Reads the headers of an uncompressed archive. Ignores entries that are neither files nor links, sparse files and
    /// paths that lead out of the archive. Blocks.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(file: File) -> Result<Self, ReadError> {
        let limits = ReadLimits { entries: MAX_ENTRIES, ..ReadLimits::default() };
        let mut reader = Reader::open(file)?.with_limits(limits);
        let mut entries = HashMap::new();
        while let Some(entry) = reader.next_entry()? {
            entries.extend(indexed(entry, reader.content()?));
        }
        Ok(Self(Arc::new(entries)))
    }

    /// Returns a file of the archive, following links within it. `None` if it does not exist.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<FileSpan> {
        let mut path = normalize(path)?;
        for _ in 0..MAX_LINKS {
            match self.0.get(&path)? {
                IndexedEntry::File(content) => return Some(content.clone()),
                IndexedEntry::Link(target) => path.clone_from(target),
            }
        }
        None
    }
}

fn indexed(entry: TarEntry, content: FileSpan) -> Option<(String, IndexedEntry)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_PATH);
    let path = normalize(&text(entry.path)?)?;
    let indexed = match entry.kind {
        EntryKind::File { extents: None, .. } => IndexedEntry::File(content),
        EntryKind::HardLink(target) => IndexedEntry::Link(normalize(&text(target)?)?),
        EntryKind::Symlink(target) => {
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            IndexedEntry::Link(normalize(&format!("{dir}/{}", text(target)?))?)
        }
        _ => return None,
    };
    Some((path, indexed))
}

/// Removes `.` and `..`. `None` for a path that leads out.
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
    use std::io::{Read as _, Write as _};

    use super::*;

    fn archive(entries: &[(&str, ::tar::EntryType, &str)]) -> File {
        let mut builder = ::tar::Builder::new(tempfile::tempfile().unwrap());
        for (path, kind, content) in entries {
            let mut header = ::tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            if matches!(kind, ::tar::EntryType::Regular) {
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
        use ::tar::EntryType::{Link, Regular, Symlink};
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
            Err(err @ (ReadError::Malformed(_) | ReadError::TooLarge { .. })) => err.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// Without a limit, such a header would be read into memory.
    #[test]
    fn a_large_extension_header_is_refused() {
        for kind in [::tar::EntryType::GNULongName, ::tar::EntryType::XHeader] {
            let mut header = ::tar::Header::new_gnu();
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
    fn an_invalid_size_is_refused() {
        let mut builder = ::tar::Builder::new(tempfile::tempfile().unwrap());
        builder.append_pax_extensions([("size", &b"many"[..])]).unwrap();
        let mut header = ::tar::Header::new_gnu();
        header.set_size(0);
        builder.append_data(&mut header, "file", &b""[..]).unwrap();
        assert_eq!(malformed(builder.into_inner().unwrap()), "a size cannot be read");
    }

    #[test]
    fn a_link_has_no_content_and_a_sparse_file_is_ignored() {
        let mut builder = ::tar::Builder::new(tempfile::tempfile().unwrap());
        let mut link = ::tar::Header::new_gnu();
        link.set_entry_type(::tar::EntryType::Link);
        link.set_size(9);
        builder.append_link(&mut link, "link", "file").unwrap();
        let holes = [("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.realsize", b"4096")];
        builder.append_pax_extensions(holes).unwrap();
        // Its map has no extents.
        let map = [&b"0\n"[..], &[0; 510]].concat();
        for (path, content) in [("sparse", &map[..]), ("file", b"text")] {
            let mut header = ::tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, path, content).unwrap();
        }
        let index = TarIndex::read(builder.into_inner().unwrap()).unwrap();
        assert_eq!((read(&index, "sparse"), read(&index, "link")), (None, Some("text".into())));
    }

    #[test]
    fn long_paths_are_ignored() {
        let path = |length: usize| ["a"; 10_000].join("/")[..length].to_owned();
        let (short, long) = (path(MAX_PATH - 1), path(MAX_PATH + 1));
        let regular = ::tar::EntryType::Regular;
        let index = TarIndex::read(archive(&[(&short, regular, "1"), (&long, regular, "2")])).unwrap();
        assert_eq!((read(&index, &short), read(&index, &long)), (Some("1".into()), None));
    }

    #[test]
    fn ignored_entries_count_towards_the_limit() {
        let mut header = ::tar::Header::new_gnu();
        header.set_entry_type(::tar::EntryType::Fifo);
        header.set_path("fifo").unwrap();
        header.set_mode(0o644);
        header.set_size(0);
        header.set_cksum();
        let many = |count: usize| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&header.as_bytes().repeat(count)).unwrap();
            file
        };
        assert_eq!(malformed(many(MAX_ENTRIES as usize + 1)), "it has more than 20000 entries");
        assert!(TarIndex::read(many(MAX_ENTRIES as usize)).unwrap().0.is_empty());
    }

    #[test]
    fn an_archive_that_is_truncated_within_a_file_is_malformed() {
        let file = archive(&[("a", ::tar::EntryType::Regular, "content")]);
        file.set_len(512 + 3).unwrap();
        assert_eq!(malformed(file), "it is truncated");
    }

    #[test]
    fn other_files_have_a_different_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 2000]).unwrap();
        assert!(matches!(TarIndex::read(file), Err(ReadError::NotTar)));
    }
}

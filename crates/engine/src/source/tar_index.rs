//! Files within a tar archive, by their paths.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use super::{Result, SourceError};

/// Entries of an archive of images. One with 500 layers has about 2,000.
const MAX_ENTRIES: usize = 20_000;

/// Links that are followed: `docker save` writes one for a layer that it wrote before.
const MAX_LINKS: usize = 5;

/// An archive and where its files lie in it.
#[derive(Clone, Debug)]
pub(crate) struct TarIndex {
    file: Arc<File>,
    entries: Arc<HashMap<String, TarEntry>>,
}

#[derive(Clone, Debug)]
enum TarEntry {
    File { offset: u64, size: u64 },
    Link(String),
}

/// A part of a file, read from its start.
#[derive(Debug)]
pub(crate) struct FileRange {
    file: Arc<File>,
    offset: u64,
    pub(crate) size: u64,
}

impl Read for FileRange {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.size).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..most], self.offset)?;
        self.offset += count as u64;
        self.size -= count as u64;
        Ok(count)
    }
}

impl TarIndex {
    /// Reads the headers of an uncompressed archive. Blocks.
    ///
    /// # Errors
    /// [`SourceError::Malformed`].
    pub(crate) fn read(mut file: File) -> Result<Self> {
        file.rewind().map_err(SourceError::io("cannot read an archive"))?;
        let unreadable = |err| SourceError::malformed("archive", &err);
        let mut archive = tar::Archive::new(&file);
        let mut entries = HashMap::new();
        for entry in archive.entries_with_seek().map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if entries.len() == MAX_ENTRIES {
                return Err(SourceError::malformed("archive", &format_args!("it has more than {MAX_ENTRIES} entries")));
            }
            if let Some((path, entry)) = read_entry(&entry) {
                entries.insert(path, entry);
            }
        }
        Ok(Self { file: Arc::new(file), entries: Arc::new(entries) })
    }

    /// A file of the archive. `None` if it has none of that path.
    pub(crate) fn open(&self, path: &str) -> Option<FileRange> {
        let mut path = normalize(path)?;
        for _ in 0..MAX_LINKS {
            match self.entries.get(&path)? {
                TarEntry::File { offset, size } => {
                    return Some(FileRange { file: Arc::clone(&self.file), offset: *offset, size: *size });
                }
                TarEntry::Link(target) => path.clone_from(target),
            }
        }
        None
    }
}

/// A file or link of the archive. Others, and those with paths that lead outside, are passed over.
fn read_entry(entry: &tar::Entry<'_, impl Read>) -> Option<(String, TarEntry)> {
    let path = normalize(std::str::from_utf8(&entry.path_bytes()).ok()?)?;
    let link = || entry.link_name_bytes().and_then(|it| String::from_utf8(it.into_owned()).ok());
    let kind = match entry.header().entry_type() {
        tar::EntryType::Regular | tar::EntryType::Continuous => {
            TarEntry::File { offset: entry.raw_file_position(), size: entry.size() }
        }
        tar::EntryType::Link => TarEntry::Link(normalize(&link()?)?),
        tar::EntryType::Symlink => {
            let dir = path.rsplit_once('/').map_or("", |it| it.0);
            TarEntry::Link(normalize(&format!("{dir}/{}", link()?))?)
        }
        _ => return None,
    };
    Some((path, kind))
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
        index.open(path)?.read_to_string(&mut text).unwrap();
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
            assert!(index.open(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn what_is_no_archive_is_malformed() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 2000]).unwrap();
        assert!(matches!(TarIndex::read(file), Err(SourceError::Malformed { .. })));
    }
}

//! Files within a tar archive, by their paths.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use super::{Result, SourceError};
use crate::archive::{Entry, EntryKind, TarReader};

/// Entries of an archive of images. One with 500 layers has about 2,000.
const MAX_ENTRIES: usize = 20_000;

/// Bytes of a path or of a link's target. Layouts and saved images have short ones, and all of them stay in memory.
const MAX_PATH: usize = 4096;

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
        let failed = || SourceError::io("cannot read an archive");
        file.rewind().map_err(failed())?;
        let length = file.metadata().map_err(failed())?.len();
        let mut archive = TarReader::new(BufReader::new(&file));
        let (mut entries, mut count) = (HashMap::new(), 0);
        while let Some(entry) = archive.next_entry().map_err(|err| SourceError::malformed("archive", &err))? {
            count += 1;
            if count > MAX_ENTRIES {
                return Err(SourceError::malformed("archive", &format_args!("it has more than {MAX_ENTRIES} entries")));
            }
            let offset = archive.seek_past_content().map_err(failed())?;
            let Some((path, entry)) = index_entry(&entry, offset) else { continue };
            if let TarEntry::File { offset, size } = entry
                && offset.checked_add(size).is_none_or(|end| end > length)
            {
                return Err(SourceError::malformed("archive", &"it breaks off"));
            }
            entries.insert(path, entry);
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

/// A file or link of the archive. Others are passed over, and so are those with paths that lead outside, and files with
/// holes: their content does not lie in the archive as it is.
fn index_entry(entry: &Entry, offset: u64) -> Option<(String, TarEntry)> {
    let text = |bytes: &[u8]| (bytes.len() <= MAX_PATH).then(|| String::from_utf8(bytes.to_vec()).ok()).flatten();
    let path = normalize(&text(&entry.path)?)?;
    let kind = match &entry.kind {
        EntryKind::File { size, extents: None } => TarEntry::File { offset, size: *size },
        EntryKind::HardLink(target) => TarEntry::Link(normalize(&text(target)?)?),
        EntryKind::Symlink(target) => {
            let dir = path.rsplit_once('/').map_or("", |it| it.0);
            TarEntry::Link(normalize(&format!("{dir}/{}", text(target)?))?)
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

    fn malformed(file: File) -> String {
        match TarIndex::read(file) {
            Err(SourceError::Malformed { why, .. }) => why,
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
    fn what_is_no_archive_is_malformed() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 2000]).unwrap();
        assert!(matches!(TarIndex::read(file), Err(SourceError::Malformed { .. })));
    }
}

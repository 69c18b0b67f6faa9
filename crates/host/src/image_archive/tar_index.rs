//! Where the files of a tar lie. No content is read but that of extension headers, which is bounded.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use tar::{EntryType, Header};

use super::{FileSpan, ImageArchiveError, Result};

const BLOCK: u64 = 512;

/// Entries of one archive: a layer or a document each.
const MAX_ENTRIES: usize = 20_000;

/// Bytes of one extension header.
const MAX_EXTENSION: u64 = 1 << 20;

/// Links that lead to one another.
const MAX_LINKS: usize = 8;

/// The files of an archive by their paths.
#[derive(Debug)]
pub(super) struct TarIndex {
    file: Arc<File>,
    entries: HashMap<String, TarEntry>,
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
}

impl TarIndex {
    pub(super) fn read(file: File) -> Result<Self> {
        let length = file.metadata()?.len();
        let mut entries = HashMap::new();
        let (mut at, mut count, mut extensions) = (0, 0, Extensions::default());
        while let Some(header) = header_at(&file, at)? {
            count += 1;
            if count > MAX_ENTRIES {
                return Err(wrong(format_args!("more than {MAX_ENTRIES} entries")));
            }
            let kind = header.entry_type();
            let own = header.entry_size().map_err(wrong)?;
            let size = extensions.size.filter(|_| !is_extension(kind)).unwrap_or(own);
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
        Ok(Self { file: Arc::new(file), entries })
    }

    /// A file of the archive, also by links within it.
    pub(super) fn find(&self, path: &str) -> Option<FileSpan> {
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
            return Err(wrong(format_args!("an extension header of more than {MAX_EXTENSION} bytes")));
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
                        b"size" => self.size = it.value().ok().and_then(|it| it.parse().ok()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A file or link with its path. Others are passed over, and so are those that lead outside.
fn indexed(header: &Header, said: Extensions, content: TarEntry) -> Option<(String, TarEntry)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
    let path = normalize(&text(said.path.unwrap_or_else(|| header.path_bytes().into_owned()))?)?;
    let target = || text(said.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned))?);
    let entry = match header.entry_type() {
        EntryType::Regular | EntryType::Continuous => content,
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

/// The header at an offset; none at the end of the archive.
fn header_at(file: &File, at: u64) -> Result<Option<Header>> {
    let mut block = [0; BLOCK as usize];
    match file.read_exact_at(&mut block, at) {
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof && at > 0 => return Ok(None),
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Err(no_tar()),
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
        _ if at == 0 => Err(no_tar()),
        _ => Err(wrong("a header has a wrong checksum")),
    }
}

fn no_tar() -> ImageArchiveError {
    ImageArchiveError::NotOci("it is no tar, or a compressed one".into())
}

fn wrong(why: impl std::fmt::Display) -> ImageArchiveError {
    ImageArchiveError::malformed("tar", why)
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

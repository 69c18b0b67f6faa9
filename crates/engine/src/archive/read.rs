//! Reads entries of a hostile stream.

use std::io::{self, Read};

use tar::Header;

use super::pax::{self, Record};
use super::sparse::{self, Extent, PaxSparse};
use super::{BLOCK, Entry, EntryKind, FileTime, LayerRefusal, Xattr, header};

/// Bytes that an extension header may have: a path, a link target and attributes.
const MAX_EXTENSION: u64 = 1 << 20;

/// Extension headers before an entry.
const MAX_EXTENSIONS: usize = 16;

/// The entries of an archive, one after the other.
#[derive(Debug)]
pub(crate) struct TarReader<R> {
    stream: R,
    /// Bytes of the present entry's content that are not read.
    content: u64,
    /// Bytes behind it up to the next block.
    padding: u64,
}

/// What extension headers say about the entry that follows.
#[derive(Debug, Default)]
struct Extensions {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Option<Vec<u8>>,
}

impl<R: Read> TarReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, content: 0, padding: 0 }
    }

    /// The stream, behind the last entry that was read.
    pub(crate) fn into_stream(self) -> R {
        self.stream
    }

    /// The next entry. Content of the one before that was not read is passed over.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, LayerRefusal> {
        let mut extensions = Extensions::default();
        for count in 0..=MAX_EXTENSIONS {
            self.skip_content()?;
            let Some(block) = self.header()? else {
                return if count == 0 { Ok(None) } else { Err(unreadable("it ends behind an extension header")) };
            };
            self.set_content(size_of(&block)?)?;
            let kind = block.as_bytes()[156];
            match kind {
                b'L' => set_once(&mut extensions.long_name, self.extension()?)?,
                b'K' => set_once(&mut extensions.long_link, self.extension()?)?,
                b'x' | b'X' => set_once(&mut extensions.pax, self.extension()?)?,
                // Those of `git archive` are comments; Docker passes over them, too.
                b'g' => {}
                _ => return self.entry(&block, &extensions).map(Some),
            }
        }
        Err(unreadable("it has too many extension headers"))
    }

    /// Reads content of the present entry: the bytes of its extents, one after the other. 0 at the end.
    pub(crate) fn read_content(&mut self, buffer: &mut [u8]) -> Result<usize, LayerRefusal> {
        let wanted = usize::try_from(self.content).map_or(buffer.len(), |it| it.min(buffer.len()));
        if wanted == 0 {
            return Ok(0);
        }
        match read(&mut self.stream, &mut buffer[..wanted])? {
            0 => Err(breaks_off()),
            count => {
                self.content -= count as u64;
                Ok(count)
            }
        }
    }

    fn entry(&mut self, block: &Header, extensions: &Extensions) -> Result<Entry, LayerRefusal> {
        let data = extensions.pax.as_deref().unwrap_or_default();
        let records = pax::records(data).ok_or_else(|| unreadable("an extended header cannot be read"))?;
        // As in other readers, the last of several records counts, and an empty one is none.
        let find =
            |key: &[u8]| records.iter().rev().find(|it| it.key == key).map(|it| it.value).filter(|it| !it.is_empty());
        if let Some(size) = find(b"size").filter(|_| !is_header_only(block)) {
            self.set_content(pax::decimal(size).ok_or_else(|| unreadable("a size cannot be read"))?)?;
        }
        let sparse = match PaxSparse::from_records(&records) {
            Some(found) => Some(found.ok_or_else(|| unreadable("a map of holes cannot be read"))?),
            None => None,
        };
        let path = named(&extensions.long_name, find(b"path"))?.unwrap_or_else(|| header::name(block));
        let path = sparse.as_ref().and_then(|it| it.name.clone()).unwrap_or(path);
        let link = named(&extensions.long_link, find(b"linkpath"))?;
        let link = link.unwrap_or_else(|| header::text(&block.as_old().linkname).to_vec());
        let refused = |why: &str| entry_refusal(&path, why);
        if path.contains(&0) || link.contains(&0) {
            return Err(refused("has a NUL in its name"));
        }
        let owner = |field: &[u8], record: Option<&[u8]>| {
            let value =
                record.map_or_else(|| header::number(field).and_then(|it| u64::try_from(it).ok()), pax::decimal);
            let value = value.and_then(|it| u32::try_from(it).ok()).filter(|it| *it != u32::MAX);
            value.ok_or_else(|| refused("has an owner that is no user id"))
        };
        let old = block.as_old();
        let mode = header::number(&old.mode).and_then(|it| u32::try_from(it & 0o7777).ok());
        let (uid, gid) = (owner(&old.uid, find(b"uid"))?, owner(&old.gid, find(b"gid"))?);
        let mtime = match find(b"mtime") {
            Some(text) => pax::time(text),
            None => header::number(&old.mtime).map(|seconds| FileTime { seconds, nanoseconds: 0 }),
        };
        Ok(Entry {
            mode: mode.ok_or_else(|| refused("has a mode that is no number"))?,
            uid,
            gid,
            mtime: mtime.ok_or_else(|| refused("has a time that is no number"))?,
            xattrs: xattrs(&records),
            kind: self.kind(block, NamedKind { path: &path, link, sparse })?,
            path,
        })
    }

    fn kind(&mut self, block: &Header, named: NamedKind<'_>) -> Result<EntryKind, LayerRefusal> {
        let NamedKind { path, link, sparse } = named;
        let device = || header::device(block).ok_or_else(|| entry_refusal(path, "is a device without numbers"));
        Ok(match block.as_bytes()[156] {
            b'S' => self.old_sparse(block, path)?,
            b'0' | 0 if path.ends_with(b"/") => EntryKind::Directory,
            b'0' | 0 | b'7' => match sparse {
                Some(sparse) => self.pax_sparse(sparse, path)?,
                None => EntryKind::File { size: self.content, extents: None },
            },
            b'1' => EntryKind::HardLink(link),
            b'2' => EntryKind::Symlink(link),
            b'3' => EntryKind::CharDevice(device()?),
            b'4' => EntryKind::BlockDevice(device()?),
            b'5' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            _ => return Err(entry_refusal(path, "is of an unknown kind")),
        })
    }

    /// GNU's old format: up to four extents in the header, more in blocks behind it.
    fn old_sparse(&mut self, block: &Header, path: &[u8]) -> Result<EntryKind, LayerRefusal> {
        let bad = || entry_refusal(path, "has a map of holes that cannot be read");
        let bytes = block.as_bytes();
        let mut extents = Vec::new();
        sparse::push_pairs(&mut extents, &bytes[386..482]).ok_or_else(bad)?;
        let size = header::number(&bytes[483..495]).and_then(|it| u64::try_from(it).ok()).ok_or_else(bad)?;
        let mut more = bytes[482] != 0;
        while more {
            let mut extension = [0; BLOCK];
            self.read_block(&mut extension)?;
            sparse::push_pairs(&mut extents, &extension[..504]).ok_or_else(bad)?;
            more = extension[504] != 0 && extents.len() < sparse::MAX_EXTENTS;
        }
        sparse::is_valid(&extents, size, self.content).then_some(()).ok_or_else(bad)?;
        Ok(EntryKind::File { size, extents: Some(extents) })
    }

    fn pax_sparse(&mut self, sparse: PaxSparse, path: &[u8]) -> Result<EntryKind, LayerRefusal> {
        let bad = || entry_refusal(path, "has a map of holes that cannot be read");
        let extents = match sparse.map {
            Some(map) => map,
            None => self.map_in_content()?.ok_or_else(bad)?,
        };
        let size = sparse.size.ok_or_else(bad)?;
        sparse::is_valid(&extents, size, self.content).then_some(()).ok_or_else(bad)?;
        Ok(EntryKind::File { size, extents: Some(extents) })
    }

    /// Format 1.0: decimal numbers on lines, the first of which counts the extents, up to the next block.
    fn map_in_content(&mut self) -> Result<Option<Vec<Extent>>, LayerRefusal> {
        let (mut numbers, mut digits) = (Vec::new(), Vec::new());
        loop {
            let mut block = [0; BLOCK];
            if self.content < BLOCK as u64 {
                return Ok(None);
            }
            self.read_block(&mut block)?;
            self.content -= BLOCK as u64;
            for byte in block {
                if byte != b'\n' {
                    digits.push(byte);
                    continue;
                }
                let Some(number) = pax::decimal(&std::mem::take(&mut digits)) else { return Ok(None) };
                numbers.push(number);
                let wanted = usize::try_from(numbers[0]).ok().filter(|it| *it <= sparse::MAX_EXTENTS);
                let Some(wanted) = wanted else { return Ok(None) };
                if numbers.len() == 1 + 2 * wanted {
                    return Ok(sparse::extents(&numbers[1..]));
                }
            }
            if digits.len() > 20 {
                return Ok(None);
            }
        }
    }

    /// The next header block; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>, LayerRefusal> {
        let mut header = Header::new_old();
        let mut filled = 0;
        while filled < BLOCK {
            match read(&mut self.stream, &mut header.as_mut_bytes()[filled..])? {
                // Some writers leave out the blocks of zeros that end an archive.
                0 if filled == 0 => return Ok(None),
                0 => return Err(breaks_off()),
                count => filled += count,
            }
        }
        if header.as_bytes().iter().all(|it| *it == 0) {
            return Ok(None);
        }
        if !header::has_right_sum(header.as_bytes()) {
            return Err(unreadable("a header has a wrong sum"));
        }
        Ok(Some(header))
    }

    fn read_block(&mut self, block: &mut [u8; BLOCK]) -> Result<(), LayerRefusal> {
        self.stream.read_exact(block).map_err(|err| stream_refusal(&err))
    }

    fn extension(&mut self) -> Result<Vec<u8>, LayerRefusal> {
        if self.content > MAX_EXTENSION {
            return Err(LayerRefusal::TooLarge { what: "bytes in an extension header".into(), limit: MAX_EXTENSION });
        }
        let mut data = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self.read_content(&mut buffer)? {
                0 => return Ok(data),
                count => data.extend_from_slice(&buffer[..count]),
            }
        }
    }

    fn skip_content(&mut self) -> Result<(), LayerRefusal> {
        let mut buffer = [0; 16 * 1024];
        self.content = self.content.checked_add(self.padding).ok_or_else(|| unreadable("a size is too large"))?;
        self.padding = 0;
        while self.read_content(&mut buffer)? > 0 {}
        Ok(())
    }

    fn set_content(&mut self, size: u64) -> Result<(), LayerRefusal> {
        self.content = size;
        let padded = size.checked_next_multiple_of(BLOCK as u64).ok_or_else(|| unreadable("a size is too large"))?;
        self.padding = padded - size;
        Ok(())
    }
}

/// What the kind of an entry is made of.
struct NamedKind<'a> {
    path: &'a [u8],
    link: Vec<u8>,
    sparse: Option<PaxSparse>,
}

/// Links, directories and nodes have no content, whatever their size says.
fn is_header_only(block: &Header) -> bool {
    matches!(block.as_bytes()[156], b'1'..=b'6')
}

fn size_of(block: &Header) -> Result<u64, LayerRefusal> {
    if is_header_only(block) {
        return Ok(0);
    }
    let size = header::number(&block.as_old().size).and_then(|it| u64::try_from(it).ok());
    size.ok_or_else(|| unreadable("a size cannot be read"))
}

fn set_once(slot: &mut Option<Vec<u8>>, value: Vec<u8>) -> Result<(), LayerRefusal> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(unreadable("it has two extension headers of a kind for one entry")),
    }
}

/// The name of an extension header. Two that differ would be read differently by different readers.
fn named(gnu: &Option<Vec<u8>>, pax: Option<&[u8]>) -> Result<Option<Vec<u8>>, LayerRefusal> {
    match (gnu.as_deref().map(header::text), pax) {
        (Some(gnu), Some(pax)) if gnu != pax => Err(entry_refusal(pax, "has two names")),
        (gnu, pax) => Ok(pax.or(gnu).map(<[u8]>::to_vec)),
    }
}

fn xattrs(records: &[Record<'_>]) -> Vec<Xattr> {
    let found = records.iter().filter_map(|it| {
        let name = it.key.strip_prefix(b"SCHILY.xattr.")?;
        Some(Xattr { name: name.to_vec(), value: it.value.to_vec() })
    });
    found.collect()
}

fn read(stream: &mut impl Read, buffer: &mut [u8]) -> Result<usize, LayerRefusal> {
    loop {
        match stream.read(buffer) {
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map_err(|err| stream_refusal(&err)),
        }
    }
}

fn stream_refusal(err: &io::Error) -> LayerRefusal {
    if err.kind() == io::ErrorKind::UnexpectedEof { breaks_off() } else { unreadable(&err.to_string()) }
}

fn breaks_off() -> LayerRefusal {
    unreadable("it breaks off")
}

fn unreadable(why: &str) -> LayerRefusal {
    LayerRefusal::Unreadable(why.to_owned())
}

/// The refusal of one entry.
pub(crate) fn entry_refusal(path: &[u8], why: &str) -> LayerRefusal {
    LayerRefusal::Entry { path: path.escape_ascii().to_string(), why: why.to_owned() }
}

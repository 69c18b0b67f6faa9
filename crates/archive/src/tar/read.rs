//! Reads entries of an untrusted stream.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::sync::Arc;

use ::tar::Header;

use super::pax::{self, Record};
use super::sparse::{self, Extent, PaxSparse};
use super::{BLOCK, EntryKind, FileSpan, FileTime, ReadError, TarEntry, Xattr, header};

/// Limits of a reader's memory, and of the number of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Maximum size of one extension header: a path, a link's target and attributes.
    pub extension_bytes: u64,
    /// Maximum number of extension headers before an entry.
    pub extensions: usize,
    /// Maximum number of entries.
    pub entries: u64,
}

impl Default for ReadLimits {
    /// 1 MiB for one extension header, 16 of them for one entry, and any number of entries.
    fn default() -> Self {
        Self { extension_bytes: 1 << 20, extensions: 16, entries: u64::MAX }
    }
}

/// The entries of an archive in order. Implements `Read` for the content of the current one.
#[derive(Debug)]
pub struct Reader<R> {
    stream: R,
    skip: fn(&mut R, u64) -> io::Result<()>,
    limits: ReadLimits,
    entries: u64,
    /// Bytes of the stream that were read or skipped.
    position: u64,
    /// Unread bytes of the current entry's content.
    content: u64,
    /// Padding up to the next block.
    padding: u64,
}

/// Values of extension headers for the next entry.
#[derive(Debug, Default)]
struct Extensions {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Option<Vec<u8>>,
}

impl<R: Read> Reader<R> {
    /// Reads from a stream.
    pub fn new(stream: R) -> Self {
        Self::with_skip(stream, |stream, count| {
            let skipped = io::copy(&mut stream.take(count), &mut io::sink())?;
            if skipped == count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        })
    }

    fn with_skip(stream: R, skip: fn(&mut R, u64) -> io::Result<()>) -> Self {
        Self { stream, skip, limits: ReadLimits::default(), entries: 0, position: 0, content: 0, padding: 0 }
    }

    /// Sets other limits.
    #[must_use]
    pub fn with_limits(self, limits: ReadLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the stream, positioned after the last entry that was read.
    pub fn into_stream(self) -> R {
        self.stream
    }

    /// Reads the next entry. Skips unread content of the previous one.
    ///
    /// # Errors
    /// [`ReadError`]: nothing can be read after it.
    pub fn next_entry(&mut self) -> Result<Option<TarEntry>, ReadError> {
        let mut extensions = Extensions::default();
        for count in 0..=self.limits.extensions {
            self.skip_content()?;
            let Some(block) = self.header()? else {
                return if count == 0 {
                    Ok(None)
                } else {
                    Err(ReadError::malformed("it ends behind an extension header"))
                };
            };
            self.set_content(size_of(&block)?)?;
            let kind = block.as_bytes()[156];
            match kind {
                b'L' => set_once(&mut extensions.long_name, self.extension()?)?,
                b'K' => set_once(&mut extensions.long_link, self.extension()?)?,
                b'x' | b'X' => set_once(&mut extensions.pax, self.extension()?)?,
                // Those of `git archive` are comments; Docker ignores them, too.
                b'g' => {}
                _ => {
                    self.entries += 1;
                    let limit = self.limits.entries;
                    if self.entries > limit {
                        return Err(ReadError::TooLarge { what: "entries".into(), limit });
                    }
                    return self.entry(&block, &extensions).map(Some);
                }
            }
        }
        Err(ReadError::malformed("it has too many extension headers"))
    }

    /// Reads content of the current entry: the bytes of its extents in order. 0 at the end.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_content(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let wanted = usize::try_from(self.content).map_or(buffer.len(), |it| it.min(buffer.len()));
        if wanted == 0 {
            return Ok(0);
        }
        match self.read_stream(&mut buffer[..wanted])? {
            0 => Err(ReadError::breaks_off()),
            count => {
                self.content -= count as u64;
                Ok(count)
            }
        }
    }

    fn entry(&mut self, block: &Header, extensions: &Extensions) -> Result<TarEntry, ReadError> {
        let data = extensions.pax.as_deref().unwrap_or_default();
        let records = pax::records(data).ok_or_else(|| ReadError::malformed("an extended header cannot be read"))?;
        // As in other readers, the last of several records counts, and an empty one is ignored.
        let find =
            |key: &[u8]| records.iter().rev().find(|it| it.key == key).map(|it| it.value).filter(|it| !it.is_empty());
        if let Some(size) = find(b"size").filter(|_| !is_header_only(block)) {
            self.set_content(pax::decimal(size).ok_or_else(|| ReadError::malformed("a size cannot be read"))?)?;
        }
        let sparse = match PaxSparse::from_records(&records) {
            Some(found) => Some(found.ok_or_else(|| ReadError::malformed("a map of holes cannot be read"))?),
            None => None,
        };
        let path = named(&extensions.long_name, find(b"path"))?.unwrap_or_else(|| header::name(block));
        let path = sparse.as_ref().and_then(|it| it.name.clone()).unwrap_or(path);
        let link = named(&extensions.long_link, find(b"linkpath"))?;
        let link = link.unwrap_or_else(|| header::text(&block.as_old().linkname).to_vec());
        let refused = |why: &str| ReadError::entry(&path, why);
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
        Ok(TarEntry {
            mode: mode.ok_or_else(|| refused("has a mode that is no number"))?,
            uid,
            gid,
            mtime: mtime.ok_or_else(|| refused("has a time that is no number"))?,
            xattrs: xattrs(&records),
            kind: self.kind(block, NamedKind { path: &path, link, sparse })?,
            path,
        })
    }

    fn kind(&mut self, block: &Header, named: NamedKind<'_>) -> Result<EntryKind, ReadError> {
        let NamedKind { path, link, sparse } = named;
        let device = || header::device(block).ok_or_else(|| ReadError::entry(path, "is a device without numbers"));
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
            flag => EntryKind::Unknown(flag),
        })
    }

    /// Reads GNU's old format: up to four extents in the header, more in further blocks.
    fn old_sparse(&mut self, block: &Header, path: &[u8]) -> Result<EntryKind, ReadError> {
        let bad = || ReadError::entry(path, "has a map of holes that cannot be read");
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

    fn pax_sparse(&mut self, sparse: PaxSparse, path: &[u8]) -> Result<EntryKind, ReadError> {
        let bad = || ReadError::entry(path, "has a map of holes that cannot be read");
        let extents = match sparse.map {
            Some(map) => map,
            None => self.map_in_content()?.ok_or_else(bad)?,
        };
        let size = sparse.size.ok_or_else(bad)?;
        sparse::is_valid(&extents, size, self.content).then_some(()).ok_or_else(bad)?;
        Ok(EntryKind::File { size, extents: Some(extents) })
    }

    /// Reads format 1.0: decimal numbers on lines, the first of which is the number of extents, up to the next block.
    fn map_in_content(&mut self) -> Result<Option<Vec<Extent>>, ReadError> {
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

    /// Reads the next header block; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>, ReadError> {
        let is_first = self.position == 0;
        let mut header = Header::new_old();
        let mut filled = 0;
        while filled < BLOCK {
            match self.read_stream(&mut header.as_mut_bytes()[filled..])? {
                // Some writers omit the blocks of zeros at the end of an archive.
                0 if filled == 0 => return Ok(None),
                0 if is_first => return Err(ReadError::NotTar),
                0 => return Err(ReadError::breaks_off()),
                count => filled += count,
            }
        }
        if header.as_bytes().iter().all(|it| *it == 0) {
            return Ok(None);
        }
        if !header::has_right_sum(header.as_bytes()) {
            let wrong = ReadError::malformed("a header has a wrong checksum");
            return Err(if is_first { ReadError::NotTar } else { wrong });
        }
        Ok(Some(header))
    }

    fn read_block(&mut self, block: &mut [u8; BLOCK]) -> Result<(), ReadError> {
        self.position += BLOCK as u64;
        Ok(self.stream.read_exact(block)?)
    }

    fn read_stream(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        loop {
            match self.stream.read(buffer) {
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                done => {
                    let count = done?;
                    self.position += count as u64;
                    return Ok(count);
                }
            }
        }
    }

    fn extension(&mut self) -> Result<Vec<u8>, ReadError> {
        let limit = self.limits.extension_bytes;
        if self.content > limit {
            return Err(ReadError::TooLarge { what: "bytes in an extension header".into(), limit });
        }
        let mut data = Vec::new();
        self.read_to_end(&mut data)?;
        Ok(data)
    }

    fn skip_content(&mut self) -> Result<(), ReadError> {
        let count = std::mem::take(&mut self.content).checked_add(std::mem::take(&mut self.padding));
        let count = count.ok_or_else(|| ReadError::malformed("a size is too large"))?;
        self.position = self.position.saturating_add(count);
        if count > 0 { Ok((self.skip)(&mut self.stream, count)?) } else { Ok(()) }
    }

    fn set_content(&mut self, size: u64) -> Result<(), ReadError> {
        self.content = size;
        let padded =
            size.checked_next_multiple_of(BLOCK as u64).ok_or_else(|| ReadError::malformed("a size is too large"))?;
        self.padding = padded - size;
        Ok(())
    }
}

impl Reader<BufReader<FileSpan>> {
    /// Opens an uncompressed archive at the start of its file, whatever the file's offset is. Skips unread content
    /// without reading it.
    ///
    /// # Errors
    /// If the file's size cannot be read.
    pub fn open(file: impl Into<Arc<File>>) -> io::Result<Self> {
        Ok(Self::with_skip(BufReader::new(FileSpan::whole(file)?), |stream, count| {
            stream.seek_relative(i64::try_from(count).map_err(|_| io::ErrorKind::UnexpectedEof)?)
        }))
    }

    /// Returns the location of the unread content of the current entry.
    ///
    /// # Errors
    /// [`ReadError::Malformed`] if the file ends within it.
    pub fn content(&self) -> Result<FileSpan, ReadError> {
        let whole = self.stream.get_ref();
        let end = self.position.checked_add(self.content).filter(|end| *end <= whole.total());
        end.map(|_| whole.part(self.position, self.content)).ok_or_else(ReadError::breaks_off)
    }
}

impl<R: Read> Reader<R> {
    /// Writes the content of the current entry to an empty file, with its holes.
    ///
    /// # Errors
    /// If the archive cannot be read or the file cannot be written.
    pub fn copy_content(&mut self, entry: &TarEntry, mut file: &File) -> io::Result<()> {
        let EntryKind::File { size, extents: Some(extents) } = &entry.kind else {
            return io::copy(self, &mut file).map(drop);
        };
        for extent in extents {
            file.seek(SeekFrom::Start(extent.offset))?;
            io::copy(&mut self.by_ref().take(extent.length), &mut file)?;
        }
        file.set_len(*size)
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_content(buffer)?)
    }
}

/// The properties of an entry's kind.
struct NamedKind<'a> {
    path: &'a [u8],
    link: Vec<u8>,
    sparse: Option<PaxSparse>,
}

/// Whether it is a link, a directory or a node, which have no content, whatever their size field.
fn is_header_only(block: &Header) -> bool {
    matches!(block.as_bytes()[156], b'1'..=b'6')
}

fn size_of(block: &Header) -> Result<u64, ReadError> {
    if is_header_only(block) {
        return Ok(0);
    }
    let size = header::number(&block.as_old().size).and_then(|it| u64::try_from(it).ok());
    size.ok_or_else(|| ReadError::malformed("a size cannot be read"))
}

fn set_once(slot: &mut Option<Vec<u8>>, value: Vec<u8>) -> Result<(), ReadError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ReadError::malformed("it has two extension headers of a kind for one entry")),
    }
}

/// Returns the name from an extension header. Two different names are refused, since readers differ in which they use.
fn named(gnu: &Option<Vec<u8>>, pax: Option<&[u8]>) -> Result<Option<Vec<u8>>, ReadError> {
    match (gnu.as_deref().map(header::text), pax) {
        (Some(gnu), Some(pax)) if gnu != pax => Err(ReadError::entry(pax, "has two names")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::Writer;

    /// The headers of one entry, the first of which claims that length.
    fn with_extension(flag: u8, size: u64) -> Vec<u8> {
        let mut tar = Vec::new();
        for (name, flag, size) in [("extension", flag, size), ("file", b'0', 0)] {
            let mut header = Header::new_gnu();
            header.set_path(name).unwrap();
            header.as_mut_bytes()[156] = flag;
            header.set_mode(0o644);
            header.set_size(size);
            header.set_cksum();
            tar.extend_from_slice(header.as_bytes());
            if size <= 1 << 20 {
                tar.resize(tar.len() + usize::try_from(size).unwrap().next_multiple_of(BLOCK), 0);
            }
        }
        tar
    }

    #[test]
    fn no_header_is_read_beyond_its_limit() {
        for flag in *b"LKx" {
            // Without a limit this would need as much memory as the archive claims.
            let refused = Reader::new(&with_extension(flag, 1 << 40)[..]).next_entry().unwrap_err();
            assert_eq!(refused.to_string(), "it has more than 1048576 bytes in an extension header");
            let tar = with_extension(flag, 4096);
            assert!(Reader::new(&tar[..]).next_entry().unwrap().is_some(), "{flag}");
            let limits = ReadLimits { extension_bytes: 4095, ..ReadLimits::default() };
            Reader::new(&tar[..]).with_limits(limits).next_entry().unwrap_err();
        }
    }

    #[test]
    fn extensions_and_entries_are_counted() {
        let mut tar = Writer::new(Vec::new());
        let limits = ReadLimits { entries: 2, extensions: 1, ..ReadLimits::default() };
        let long = |at: u8| TarEntry::new(vec![at; 200], EntryKind::Fifo, 0o644);
        for at in *b"abc" {
            tar.write_entry(&long(at)).unwrap();
        }
        let tar = tar.finish().unwrap();
        let mut reader = Reader::new(&tar[..]).with_limits(limits);
        assert_eq!(reader.next_entry().unwrap(), Some(long(b'a')));
        assert_eq!(reader.next_entry().unwrap(), Some(long(b'b')));
        assert_eq!(reader.next_entry().unwrap_err().to_string(), "it has more than 2 entries");
        let none = ReadLimits { extensions: 0, ..limits };
        Reader::new(&tar[..]).with_limits(none).next_entry().unwrap_err();
    }

    #[test]
    fn content_is_read_or_skipped_and_located() {
        let size = 3 << 20;
        let mut tar = Writer::new(tempfile::tempfile().unwrap());
        for name in ["a", "b", "c"] {
            tar.write_file(&TarEntry::new(name, EntryKind::file(size), 0o644), io::repeat(name.as_bytes()[0])).unwrap();
        }
        let file = tar.finish().unwrap();
        let mut reader = Reader::open(file.try_clone().unwrap()).unwrap();
        let (mut seen, mut spans) = (Vec::new(), Vec::new());
        while let Some(entry) = reader.next_entry().unwrap() {
            spans.push(reader.content().unwrap());
            let is_read = entry.path != b"b";
            seen.push(if is_read { io::copy(&mut reader, &mut io::sink()).unwrap() } else { 0 });
        }
        assert_eq!(seen, [size, 0, size]);
        for (mut span, byte) in spans.into_iter().zip(*b"abc") {
            let mut content = Vec::new();
            span.read_to_end(&mut content).unwrap();
            assert!(content == vec![byte; usize::try_from(size).unwrap()]);
        }
        file.set_len(2 * size + 100).unwrap();
        let mut cut = Reader::open(file).unwrap();
        cut.next_entry().unwrap();
        cut.next_entry().unwrap();
        assert_eq!(cut.next_entry().unwrap_err().to_string(), "it is truncated");
    }

    #[test]
    fn holes_are_restored() {
        let mut tar = ::tar::Builder::new(Vec::new());
        tar.append_pax_extensions([("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.realsize", b"9000")]).unwrap();
        let content = [&b"1\n4096\n3\n"[..], &[0; BLOCK - 9], b"abc"].concat();
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, "file", &content[..]).unwrap();
        let tar = tar.into_inner().unwrap();
        let mut reader = Reader::new(&tar[..]);
        let entry = reader.next_entry().unwrap().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        reader.copy_content(&entry, &file).unwrap();
        let mut copied = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut copied).unwrap();
        let mut expected = vec![0; 9000];
        expected[4096..4099].copy_from_slice(b"abc");
        assert!(copied == expected);
    }
}

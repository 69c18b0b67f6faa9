//! Writes entries canonically: the same tree results in the same bytes.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};

use ::tar::{EntryType, Header};

use super::{BLOCK, Device, EntryKind, TarEntry, pax};

/// The largest value of the user, group and size fields in octal digits.
const MAX_ID: u32 = 0o777_7777;
const MAX_SIZE: u64 = 0o77_777_777_777;

/// Size of the copy buffer.
const BUFFER: usize = 256 << 10;

/// An archive writer: ustar headers, with pax records for what does not fit into them.
#[derive(Debug)]
pub struct Writer<W> {
    stream: W,
    /// Announced bytes of content that are not written yet.
    content: u64,
    padding: usize,
}

impl<W: Write> Writer<W> {
    /// Begins an archive.
    pub fn new(stream: W) -> Self {
        Self { stream, content: 0, padding: 0 }
    }

    /// Writes the headers of an entry. The caller then writes the complete content of a file.
    ///
    /// # Errors
    /// If the stream fails, or the previous file is incomplete.
    pub fn write_entry(&mut self, entry: &TarEntry) -> io::Result<()> {
        self.begin_entry(entry).map(drop)
    }

    /// Writes a file with as many bytes as its entry announces: if it shrinks meanwhile, the rest is zeros.
    ///
    /// # Errors
    /// If the stream fails, or the content cannot be read.
    pub fn write_file(&mut self, entry: &TarEntry, content: impl Read) -> io::Result<()> {
        self.write_entry(entry)?;
        let mut content = content.chain(io::repeat(0)).take(self.content);
        let mut buffer = vec![0; usize::try_from(self.content).map_or(BUFFER, |size| size.clamp(1, BUFFER))];
        loop {
            match content.read(&mut buffer)? {
                0 => return Ok(()),
                count => self.write_all(&buffer[..count])?,
            }
        }
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// If the stream fails, or the last file is incomplete.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_content()?;
        self.stream.write_all(&[0; 2 * BLOCK])?;
        Ok(self.stream)
    }

    fn begin_entry(&mut self, entry: &TarEntry) -> io::Result<Header> {
        self.end_content()?;
        let records = records(entry);
        if !records.is_empty() {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::XHeader);
            header.set_mode(0o644);
            self.write_header(&mut header, records.len() as u64)?;
            self.stream.write_all(&records)?;
            self.stream.write_all(&[0; BLOCK][..padding(records.len() as u64)])?;
        }
        let (size, mut header) = (entry.size(), header(entry)?);
        (self.content, self.padding) = (size, padding(size));
        self.write_header(&mut header, size)?;
        Ok(header)
    }

    fn end_content(&mut self) -> io::Result<()> {
        if self.content > 0 {
            return Err(io::Error::other("a file shrank while it was read"));
        }
        self.stream.write_all(&[0; BLOCK][..std::mem::take(&mut self.padding)])
    }

    fn write_header(&mut self, header: &mut Header, size: u64) -> io::Result<()> {
        header.set_size(if size > MAX_SIZE { 0 } else { size });
        header.set_cksum();
        self.stream.write_all(header.as_bytes())
    }
}

impl<W: Write> Write for Writer<W> {
    /// Writes a part of the current file's content.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.content.checked_sub(bytes.len() as u64);
        self.content = left.ok_or_else(|| io::Error::other("a file grew while it was read"))?;
        self.stream.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A file of an archive whose size is not known yet.
#[derive(Debug)]
pub(crate) struct GrowingFile {
    /// Offset of its first header.
    start: u64,
    /// The header that gets its size.
    header: Header,
    /// Offset of that header.
    header_at: u64,
    size: u64,
}

impl Writer<File> {
    /// Begins a file of unknown size.
    pub(crate) fn begin_growing(&mut self, entry: &TarEntry) -> io::Result<GrowingFile> {
        self.end_content()?;
        let start = self.stream.stream_position()?;
        let header = self.begin_entry(entry)?;
        let header_at = self.stream.stream_position()? - BLOCK as u64;
        Ok(GrowingFile { start, header, header_at, size: 0 })
    }

    /// Appends content.
    pub(crate) fn grow(&mut self, file: &mut GrowingFile, bytes: &[u8]) -> io::Result<()> {
        file.size += bytes.len() as u64;
        self.stream.write_all(bytes)
    }

    /// Writes the size into the header.
    pub(crate) fn end_growing(&mut self, file: &mut GrowingFile) -> io::Result<()> {
        self.stream.write_all(&[0; BLOCK][..padding(file.size)])?;
        let end = self.stream.stream_position()?;
        self.stream.seek(SeekFrom::Start(file.header_at))?;
        // Beyond 8 GiB in base 256: a pax record would have needed space before the content.
        file.header.set_size(file.size);
        file.header.set_cksum();
        self.stream.write_all(file.header.as_bytes())?;
        self.stream.seek(SeekFrom::Start(end)).map(drop)
    }

    /// Removes the file from the archive.
    pub(crate) fn remove_growing(&mut self, file: &GrowingFile) -> io::Result<()> {
        self.stream.set_len(file.start)?;
        self.stream.seek(SeekFrom::Start(file.start)).map(drop)
    }
}

/// A stream that fails with [`io::ErrorKind::FileTooLarge`] after a number of bytes.
#[derive(Debug)]
pub struct LimitedWriter<W> {
    stream: W,
    left: u64,
}

impl<W: Write> LimitedWriter<W> {
    /// Allows `left` bytes.
    pub fn new(stream: W, left: u64) -> Self {
        Self { stream, left }
    }

    /// The stream.
    pub fn into_inner(self) -> W {
        self.stream
    }
}

impl<W: Write> Write for LimitedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        self.stream.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

fn header(entry: &TarEntry) -> io::Result<Header> {
    let mut header = Header::new_ustar();
    let fits = |id: u32| u64::from(if id > MAX_ID { 0 } else { id });
    header.set_mode(entry.mode);
    header.set_uid(fits(entry.uid));
    header.set_gid(fits(entry.gid));
    let seconds = u64::try_from(entry.mtime.seconds).unwrap_or(0);
    header.set_mtime(if seconds > MAX_SIZE { 0 } else { seconds });
    copy_text(&mut header.as_old_mut().name, &entry.path);
    let (kind, link) = match &entry.kind {
        EntryKind::File { .. } => (EntryType::Regular, None),
        EntryKind::Directory => (EntryType::Directory, None),
        EntryKind::Symlink(target) => (EntryType::Symlink, Some(target)),
        EntryKind::HardLink(target) => (EntryType::Link, Some(target)),
        EntryKind::CharDevice(_) => (EntryType::Char, None),
        EntryKind::BlockDevice(_) => (EntryType::Block, None),
        EntryKind::Fifo => (EntryType::Fifo, None),
        EntryKind::Unknown(_) => return Err(io::ErrorKind::InvalidInput.into()),
    };
    header.set_entry_type(kind);
    if let Some(link) = link {
        copy_text(&mut header.as_old_mut().linkname, link);
    }
    if let (EntryKind::CharDevice(device) | EntryKind::BlockDevice(device), Some(ustar)) =
        (&entry.kind, header.as_ustar_mut())
    {
        let Device { major, minor } = *device;
        ustar.set_device_major(major);
        ustar.set_device_minor(minor);
    }
    Ok(header)
}

/// Copies as much as fits; if that is not all, a record contains the whole text.
fn copy_text(field: &mut [u8], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

fn records(entry: &TarEntry) -> Vec<u8> {
    let mut data = Vec::new();
    let fits = |text: &[u8]| text.len() <= 100 && text.is_ascii();
    if !fits(&entry.path) {
        pax::push(&mut data, b"path", &entry.path);
    }
    if let EntryKind::Symlink(link) | EntryKind::HardLink(link) = &entry.kind
        && !fits(link)
    {
        pax::push(&mut data, b"linkpath", link);
    }
    if entry.size() > MAX_SIZE {
        pax::push(&mut data, b"size", entry.size().to_string().as_bytes());
    }
    for (key, id) in [(&b"uid"[..], entry.uid), (b"gid", entry.gid)] {
        if id > MAX_ID {
            pax::push(&mut data, key, id.to_string().as_bytes());
        }
    }
    if let Some(time) = pax::time_text(entry.mtime) {
        pax::push(&mut data, b"mtime", time.as_bytes());
    }
    let mut xattrs: Vec<_> = entry.xattrs.iter().collect();
    xattrs.sort();
    for it in xattrs {
        pax::push(&mut data, &[b"SCHILY.xattr.", it.name.as_slice()].concat(), &it.value);
    }
    data
}

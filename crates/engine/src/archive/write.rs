//! Writes entries canonically: the same tree gives the same bytes.

use std::io::{self, Write};

use tar::{EntryType, Header};

use super::{BLOCK, Device, Entry, EntryKind, pax};

/// The largest number that the fields of a user, and of a size, hold in octal digits.
const MAX_ID: u32 = 0o777_7777;
const MAX_SIZE: u64 = 0o77_777_777_777;

/// An archive that is being written: ustar headers, with PAX records for what does not fit into them.
#[derive(Debug)]
pub(crate) struct TarWriter<W> {
    stream: W,
    /// Bytes of content that are announced and not written.
    content: u64,
    padding: usize,
}

impl<W: Write> TarWriter<W> {
    pub(crate) fn new(stream: W) -> Self {
        Self { stream, content: 0, padding: 0 }
    }

    /// Writes the headers of an entry. A file's content, all of its size, follows by [`write_content`](Self::write_content).
    pub(crate) fn write_entry(&mut self, entry: &Entry) -> io::Result<()> {
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
        let size = if let EntryKind::File { size, .. } = entry.kind { size } else { 0 };
        (self.content, self.padding) = (size, padding(size));
        self.write_header(&mut header(entry), size)
    }

    /// Writes a part of the present file's content.
    pub(crate) fn write_content(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = self.content.checked_sub(bytes.len() as u64);
        self.content = left.ok_or_else(|| io::Error::other("a file grew while it was read"))?;
        self.stream.write_all(bytes)
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.end_content()?;
        self.stream.write_all(&[0; 2 * BLOCK])?;
        Ok(self.stream)
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

fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

fn header(entry: &Entry) -> Header {
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
    header
}

/// Copies as much as fits; the whole stands in a record if that is not all.
fn copy_text(field: &mut [u8], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

fn records(entry: &Entry) -> Vec<u8> {
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
    if let EntryKind::File { size, .. } = entry.kind
        && size > MAX_SIZE
    {
        pax::push(&mut data, b"size", size.to_string().as_bytes());
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

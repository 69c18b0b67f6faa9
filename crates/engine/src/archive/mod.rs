//! The tar format as layers need it: read from hostile streams, written canonically.
//!
//! The `tar` crate reads whole extension headers into memory, whatever size they claim, and splits PAX records at line
//! breaks, which values of `security.capability` may contain. So only its layout of a header is used.

mod header;
mod pax;
mod read;
mod refusal;
mod sparse;
mod write;

pub(crate) use read::{TarReader, entry_refusal};
pub(crate) use refusal::LayerRefusal;
pub(crate) use sparse::Extent;
pub(crate) use write::TarWriter;

/// Bytes of a block.
const BLOCK: usize = 512;

/// One entry, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// As the archive names it.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: EntryKind,
    /// Permission bits and those of set-id and sticky.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: FileTime,
    /// Extended attributes, in the archive's order.
    pub(crate) xattrs: Vec<Xattr>,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// Its content follows: `extents` of it, if it has holes.
    File {
        size: u64,
        extents: Option<Vec<Extent>>,
    },
    Directory,
    /// Its target.
    Symlink(Vec<u8>),
    /// The path of an earlier entry, which it is another name of.
    HardLink(Vec<u8>),
    CharDevice(Device),
    BlockDevice(Device),
    Fifo,
}

/// The numbers of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// A time since 1970, with nanoseconds that count forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileTime {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Xattr {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

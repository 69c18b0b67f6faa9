//! The tar format: reads untrusted streams, writes canonical ones.
//!
//! [`Reader`] holds no more of an archive in memory than [`ReadLimits`] allow, whatever its headers claim. [`Writer`]
//! writes the same bytes for the same entries: ustar headers, with pax records for what does not fit into them.
//!
//! The `tar` crate reads whole extension headers into memory, whatever size they claim, and splits pax records at line
//! breaks, which values of `security.capability` may contain. So only its layout of a header is used.

mod error;
mod header;
mod pack;
mod pax;
mod read;
mod span;
mod sparse;
mod write;

pub use error::ReadError;
pub use pack::pack_tree;
pub use read::{ReadLimits, Reader};
pub use span::FileSpan;
pub use sparse::Extent;
pub(crate) use write::GrowingFile;
pub use write::{LimitedWriter, Writer};

/// Size of a block.
const BLOCK: usize = 512;

/// One entry, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarEntry {
    /// Its path in the archive.
    pub path: Vec<u8>,
    /// Its kind, with properties of that kind.
    pub kind: EntryKind,
    /// Permission bits, including set-id and sticky.
    pub mode: u32,
    /// The user it belongs to.
    pub uid: u32,
    /// The group it belongs to.
    pub gid: u32,
    /// The time of its last change.
    pub mtime: FileTime,
    /// Extended attributes, in the archive's order.
    pub xattrs: Vec<Xattr>,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Its content follows.
    File {
        /// Bytes, holes included.
        size: u64,
        /// The stored parts, if the file is sparse.
        extents: Option<Vec<Extent>>,
    },
    /// A directory.
    Directory,
    /// Its target.
    Symlink(Vec<u8>),
    /// The path of an earlier entry that is the same file.
    HardLink(Vec<u8>),
    /// A character device.
    CharDevice(Device),
    /// A block device.
    BlockDevice(Device),
    /// A named pipe.
    Fifo,
    /// An unknown type flag. The writer does not accept it.
    Unknown(u8),
}

/// The numbers of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The driver.
    pub major: u32,
    /// The device of that driver.
    pub minor: u32,
}

/// A time since 1970, with nanoseconds that count forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanoseconds: u32,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// Its name, with the namespace.
    pub name: Vec<u8>,
    /// Its value: any bytes.
    pub value: Vec<u8>,
}

impl TarEntry {
    /// An entry of root, at the start of 1970.
    #[must_use]
    pub fn new(path: impl Into<Vec<u8>>, kind: EntryKind, mode: u32) -> Self {
        Self { path: path.into(), kind, mode, uid: 0, gid: 0, mtime: FileTime::default(), xattrs: Vec::new() }
    }

    /// The size of a file, including holes; 0 for anything else.
    #[must_use]
    pub fn size(&self) -> u64 {
        if let EntryKind::File { size, .. } = self.kind { size } else { 0 }
    }
}

impl EntryKind {
    /// A file without holes.
    #[must_use]
    pub fn file(size: u64) -> Self {
        Self::File { size, extents: None }
    }
}

impl FileTime {
    /// A whole second.
    #[must_use]
    pub fn from_seconds(seconds: i64) -> Self {
        Self { seconds, nanoseconds: 0 }
    }
}

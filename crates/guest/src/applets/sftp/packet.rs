//! Packets: parses the fields of requests, and builds replies.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;

/// Kinds of replies.
pub(super) mod reply {
    pub(in super::super) const VERSION: u8 = 2;
    pub(in super::super) const STATUS: u8 = 101;
    pub(in super::super) const HANDLE: u8 = 102;
    pub(in super::super) const DATA: u8 = 103;
    pub(in super::super) const NAME: u8 = 104;
    pub(in super::super) const ATTRS: u8 = 105;
    pub(in super::super) const EXTENDED: u8 = 201;
}

/// Codes of a status.
pub(super) mod status {
    pub(in super::super) const OK: u32 = 0;
    pub(in super::super) const EOF: u32 = 1;
    pub(in super::super) const NO_SUCH_FILE: u32 = 2;
    pub(in super::super) const PERMISSION_DENIED: u32 = 3;
    pub(in super::super) const FAILURE: u32 = 4;
    pub(in super::super) const BAD_MESSAGE: u32 = 5;
    pub(in super::super) const UNSUPPORTED: u32 = 8;
}

/// Why a request failed.
#[derive(Debug)]
pub(super) struct SftpError {
    pub(super) status: u32,
    pub(super) message: String,
}

impl SftpError {
    pub(super) fn new(status: u32, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(super) fn failure(message: &str) -> Self {
        Self::new(status::FAILURE, message)
    }

    /// The error for a packet that ends before its fields do.
    fn cut() -> Self {
        Self::new(status::BAD_MESSAGE, "the packet is too short")
    }
}

impl From<Errno> for SftpError {
    fn from(errno: Errno) -> Self {
        let status = match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP => status::NO_SUCH_FILE,
            Errno::PERM | Errno::ACCESS | Errno::FAULT => status::PERMISSION_DENIED,
            Errno::NAMETOOLONG | Errno::INVAL => status::BAD_MESSAGE,
            Errno::NOSYS => status::UNSUPPORTED,
            _ => status::FAILURE,
        };
        Self::new(status, errno.to_string())
    }
}

impl From<io::Error> for SftpError {
    fn from(err: io::Error) -> Self {
        Errno::from_io_error(&err).map_or_else(|| Self::failure(&err.to_string()), Self::from)
    }
}

/// The fields of a request that are not parsed yet.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SftpError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(SftpError::cut)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, SftpError> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, SftpError> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], SftpError> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(SftpError::cut)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// A path; an empty one is the directory where the server runs.
    pub(super) fn path(&mut self) -> Result<&'a Path, SftpError> {
        let path = self.bytes()?;
        Ok(Path::new(OsStr::from_bytes(if path.is_empty() { b"." } else { path })))
    }
}

/// A reply under construction.
#[derive(Debug)]
pub(super) struct SftpReply(Vec<u8>);

impl SftpReply {
    /// A reply with the id of its request, or with the version of the protocol.
    pub(super) fn new(kind: u8, id: u32) -> Self {
        Self(vec![0, 0, 0, 0, kind]).u32(id)
    }

    pub(super) fn status(id: u32, status: u32, message: &str) -> Self {
        Self::new(reply::STATUS, id).u32(status).bytes(message.as_bytes()).bytes(b"en")
    }

    pub(super) fn ok(id: u32) -> Self {
        Self::status(id, status::OK, "Success")
    }

    /// A reply that consists of one path.
    pub(super) fn path(id: u32, path: &Path) -> Self {
        let path = path.as_os_str().as_bytes();
        Self::new(reply::NAME, id).u32(1).bytes(path).bytes(path).u32(0)
    }

    #[must_use]
    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    #[must_use]
    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    #[must_use]
    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        let mut reply = self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        reply.0.extend(bytes);
        reply
    }

    /// The whole packet.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - 4).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

//! What the kernel refused, in words for the host.

use rustix::io::Errno;

use super::error::{code, words};
use crate::wire::space::TroubleCode;
use crate::wire::{At, Fault, FaultCode, Kind};

/// Bytes of a path, at most: the kernel's limit, and far below that of a header which has to name it.
const MAX_PATH: usize = 4096;

/// Bytes of one part of a path, at most: the kernel's limit.
const MAX_NAME: usize = 255;

/// A path as it was given, which is how messages name it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    path: String,
    /// What it means that a part of the path is no directory.
    behind_file: FaultCode,
}

impl Asked {
    /// A path of something that should be there: behind a file there is nothing.
    pub(super) fn there(at: &At) -> Result<Self, Fault> {
        Self::new(at, FaultCode::NotFound)
    }

    /// A path of something that is to be made: behind a file nothing can be.
    pub(super) fn made(at: &At) -> Result<Self, Fault> {
        Self::new(at, FaultCode::WrongKind)
    }

    fn new(at: &At, behind_file: FaultCode) -> Result<Self, Fault> {
        let invalid = |why: &str| Err(Fault::new(FaultCode::Invalid, why));
        match &at.path {
            path if path.len() >= MAX_PATH => invalid("a path of 4096 bytes or more"),
            path if !path.starts_with('/') => invalid(&format!("`{path}` is no absolute path")),
            path if path.contains('\0') => invalid("a path with a NUL"),
            path => Ok(Self { path: path.clone(), behind_file }),
        }
    }

    /// The path with another last part.
    pub(super) fn beside(&self, name: &str) -> Result<Self, Fault> {
        if name.is_empty() || name.len() > MAX_NAME || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(Fault::new(FaultCode::Invalid, format!("`{name}` is no name")));
        }
        let path = self.path.trim_end_matches('/');
        let dir = path.rfind('/').map_or("", |it| &path[..it]);
        Ok(Self { path: format!("{dir}/{name}"), behind_file: FaultCode::WrongKind })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The last part; `/` for the root.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').find(|it| !it.is_empty()).unwrap_or("/")
    }

    pub(super) fn fault(&self, errno: Errno) -> Fault {
        let (code, why) = match (code(errno), errno) {
            (TroubleCode::NotFound, _) => (FaultCode::NotFound, "does not exist"),
            (TroubleCode::NotDirectory, _) => (self.behind_file, "has a part that is no directory"),
            (TroubleCode::IsDirectory, _) => (FaultCode::WrongKind, "is a directory"),
            (TroubleCode::Escape, _) => {
                (FaultCode::WrongKind, "leads through a link that may not be followed, or too many")
            }
            (TroubleCode::Exists, _) => (FaultCode::Exists, "exists already"),
            (TroubleCode::NotEmpty, _) => (FaultCode::Exists, "is not empty"),
            (TroubleCode::Denied, Errno::XDEV) => (FaultCode::Denied, "has something mounted in it"),
            (TroubleCode::Denied, Errno::BUSY) => (FaultCode::Denied, "is mounted, or in use"),
            (TroubleCode::Denied, _) => (FaultCode::Denied, "is not permitted to this user"),
            (TroubleCode::ReadOnly, _) => (FaultCode::Denied, "is on a read-only file system"),
            (_, other) => return Fault::new(FaultCode::Io, format!("`{}` failed: {}", self.path, words(other))),
        };
        Fault::new(code, format!("`{}` {why}", self.path))
    }

    pub(super) fn wrong(&self, why: &str) -> Fault {
        Fault::new(FaultCode::WrongKind, format!("`{}` {why}", self.path))
    }

    pub(super) fn denied(&self, why: &str) -> Fault {
        Fault::new(FaultCode::Denied, format!("`{}` {why}", self.path))
    }

    pub(super) fn exists(&self) -> Fault {
        self.fault(Errno::EXIST)
    }

    pub(super) fn expect_file(&self, kind: Kind) -> Result<(), Fault> {
        match kind {
            Kind::File => Ok(()),
            Kind::Dir => Err(self.wrong("is a directory")),
            Kind::Link => Err(self.wrong("is a link")),
            Kind::Special => Err(self.wrong("is a socket, pipe or device")),
        }
    }

    pub(super) fn expect_dir(&self, kind: Kind) -> Result<(), Fault> {
        if kind == Kind::Dir { Ok(()) } else { Err(self.wrong("is there already and no directory")) }
    }
}

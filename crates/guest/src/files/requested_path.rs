//! The path of a request, and the errors that contain it.

use rustix::io::Errno;

use super::error::{code, words};
use crate::protocol::workspace::WorkspaceErrorCode;
use crate::protocol::{ErrorCode, FileKind, FileRef, RpcError};

/// Longest path in bytes: the kernel's limit. A path also has to fit into the header of an error.
const MAX_PATH: usize = 4096;

/// Longest part of a path in bytes: the kernel's limit.
const MAX_NAME: usize = 255;

/// A path as the caller gave it, which is how messages show it.
#[derive(Clone, Debug)]
pub(super) struct RequestedPath {
    path: String,
    /// The error if a part of the path is not a directory.
    behind_file: ErrorCode,
}

impl RequestedPath {
    /// A path of an entry that should exist: if a part is a file, the entry does not exist.
    pub(super) fn existing(at: &FileRef) -> Result<Self, RpcError> {
        Self::new(at, ErrorCode::NotFound)
    }

    /// A path of an entry to create: if a part is a file, it cannot be created.
    pub(super) fn to_create(at: &FileRef) -> Result<Self, RpcError> {
        Self::new(at, ErrorCode::WrongKind)
    }

    fn new(at: &FileRef, behind_file: ErrorCode) -> Result<Self, RpcError> {
        let invalid = |why: &str| Err(RpcError::new(ErrorCode::Invalid, why));
        match &at.path {
            path if path.len() >= MAX_PATH => invalid("the path has 4096 bytes or more"),
            path if !path.starts_with('/') => invalid(&format!("`{path}` is not an absolute path")),
            path if path.contains('\0') => invalid("the path contains a NUL"),
            path => Ok(Self { path: path.clone(), behind_file }),
        }
    }

    /// The path with another last part.
    pub(super) fn sibling(&self, name: &str) -> Result<Self, RpcError> {
        if name.is_empty() || name.len() > MAX_NAME || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(RpcError::new(ErrorCode::Invalid, format!("`{name}` is not a valid file name")));
        }
        let path = self.path.trim_end_matches('/');
        let dir = path.rfind('/').map_or("", |it| &path[..it]);
        Ok(Self { path: format!("{dir}/{name}"), behind_file: ErrorCode::WrongKind })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The last part; `/` for the root.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').find(|it| !it.is_empty()).unwrap_or("/")
    }

    pub(super) fn error(&self, errno: Errno) -> RpcError {
        let (code, why) = match (code(errno), errno) {
            (WorkspaceErrorCode::NotFound, _) => (ErrorCode::NotFound, "does not exist"),
            (WorkspaceErrorCode::NotDirectory, _) => (self.behind_file, "has a parent that is not a directory"),
            (WorkspaceErrorCode::IsDirectory, _) => (ErrorCode::WrongKind, "is a directory"),
            (WorkspaceErrorCode::Escape, _) => {
                (ErrorCode::WrongKind, "contains a link that may not be followed, or too many links")
            }
            (WorkspaceErrorCode::Exists, _) => (ErrorCode::Exists, "already exists"),
            (WorkspaceErrorCode::NotEmpty, _) => (ErrorCode::Exists, "is not empty"),
            (WorkspaceErrorCode::Denied, Errno::XDEV) => (ErrorCode::Denied, "contains a mount"),
            (WorkspaceErrorCode::Denied, Errno::BUSY) => (ErrorCode::Denied, "is mounted, or in use"),
            (WorkspaceErrorCode::Denied, _) => (ErrorCode::Denied, "is not accessible to this user"),
            (WorkspaceErrorCode::ReadOnly, _) => (ErrorCode::Denied, "is on a read-only file system"),
            (_, other) => return RpcError::new(ErrorCode::Io, format!("`{}` failed: {}", self.path, words(other))),
        };
        RpcError::new(code, format!("`{}` {why}", self.path))
    }

    pub(super) fn wrong_kind(&self, why: &str) -> RpcError {
        RpcError::new(ErrorCode::WrongKind, format!("`{}` {why}", self.path))
    }

    pub(super) fn denied(&self, why: &str) -> RpcError {
        RpcError::new(ErrorCode::Denied, format!("`{}` {why}", self.path))
    }

    pub(super) fn exists(&self) -> RpcError {
        self.error(Errno::EXIST)
    }

    pub(super) fn expect_file(&self, kind: FileKind) -> Result<(), RpcError> {
        match kind {
            FileKind::File => Ok(()),
            FileKind::Dir => Err(self.wrong_kind("is a directory")),
            FileKind::Link => Err(self.wrong_kind("is a link")),
            FileKind::Special => Err(self.wrong_kind("is a socket, pipe or device")),
        }
    }

    pub(super) fn expect_dir(&self, kind: FileKind) -> Result<(), RpcError> {
        if kind == FileKind::Dir { Ok(()) } else { Err(self.wrong_kind("already exists and is not a directory")) }
    }
}

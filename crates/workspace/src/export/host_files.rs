//! What the host has at a path now.

use std::ffi::OsStr;
use std::io::{self, Read as _};

use coracle_host::fs::{HostPath, HostPathError, digest};
use coracle_host::tree::{DirHandle, FileIdentity, Node};
use coracle_runtime::BaselineMount;
use sha2::{Digest as _, Sha256};

/// A file of the host, or what is in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostFileState {
    Missing,
    File {
        sha256: String,
        mode: u32,
        stamp: FileIdentity,
    },
    /// Something that is not gone through, and why.
    Unsupported(&'static str),
}

/// The directory of a mount, if it is still where it was.
pub(super) fn tree(mount: &BaselineMount) -> Result<DirHandle, HostPathError> {
    let host = HostPath::open(&mount.host)?;
    if host.real() != mount.host || !host.is_dir() {
        return Err(HostPathError::NotFound(mount.host.clone()));
    }
    DirHandle::from_path(&host).map_err(|source| HostPathError::Io { path: mount.host.clone(), source })
}

/// Looks at a path beneath a directory. `going` says which files above it are about to go.
pub(super) fn inspect(tree: &DirHandle, path: &str, going: &dyn Fn(&str) -> bool) -> io::Result<HostFileState> {
    let (mut here, mut done) = (tree.clone(), 0);
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    for part in above.split('/').filter(|it| !it.is_empty()) {
        done += part.len() + usize::from(done > 0);
        match here.entry_kind(OsStr::new(part))? {
            Some(Node::Dir) => here = here.enter(OsStr::new(part))?,
            None => return Ok(HostFileState::Missing),
            Some(Node::File) if going(&path[..done]) => return Ok(HostFileState::Missing),
            Some(Node::Link) => return Ok(HostFileState::Unsupported("a link lies on its way on the host")),
            Some(_) => return Ok(HostFileState::Unsupported("a file lies on its way on the host")),
        }
    }
    let name = OsStr::new(name);
    match here.entry_kind(name)? {
        None => Ok(HostFileState::Missing),
        Some(Node::Link) => Ok(HostFileState::Unsupported("it is a link on the host")),
        Some(Node::Dir) => Ok(HostFileState::Unsupported("it is a directory on the host")),
        Some(Node::Other) => Ok(HostFileState::Unsupported("it is neither a file nor a directory on the host")),
        Some(Node::File) => {
            let opened = here.open(name)?;
            let sha256 = digest(&opened.file)?.sha256;
            Ok(HostFileState::File { sha256, mode: opened.mode & 0o777, stamp: opened.stamp })
        }
    }
}

/// A file's content, if it has no more than that and is the one that is meant.
pub(super) fn content(tree: &DirHandle, path: &str, sha256: &str, most: u64) -> Option<Vec<u8>> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let dir = tree.descend(above.split('/').filter(|it| !it.is_empty()).map(OsStr::new)).ok()?;
    let mut bytes = Vec::new();
    dir.open(OsStr::new(name)).ok()?.file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most && hex::encode(Sha256::digest(&bytes)) == sha256).then_some(bytes)
}

//! Looks up paths of a container for copies: with the guest's own code, or without a guest with the engine's archive
//! calls. Runs no program of the container: it would run as root, and the image or an earlier copy may have replaced
//! it.

use coracle_client::Link;
use coracle_protocol::{ErrorCode, FileEntry, FileKind, FileRef, UserSpec};
use coracle_runtime::{ContainerRuntime, PathKind, path_kind};
use coracle_types::{Capability, ContainerId, ContainerPath, Error as Engine, Ids};

use crate::{Error, Result};

/// What is at a path, for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupant {
    Dir,
    /// Anything else, also a link that leads nowhere.
    File,
}

/// The path of a copy request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination<'a> {
    pub(super) given: &'a ContainerPath,
    /// The name that the copy gets below a directory.
    pub(super) name: &'a str,
    pub(super) into_directory: bool,
}

/// Sees what is at a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lookup<'a> {
    Guest(GuestFiles<'a>),
    Engine { runtime: &'a dyn ContainerRuntime, id: &'a ContainerId },
}

impl Lookup<'_> {
    /// The target of a copy, and the existing entry there.
    pub(super) async fn target(&self, to: Destination<'_>) -> Result<(ContainerPath, Option<Occupant>)> {
        let below = to.into_directory || self.occupant(to.given).await? == Some(Occupant::Dir);
        let path = if below { joined(to.given, to.name)? } else { to.given.clone() };
        let occupant = self.occupant(&path).await?;
        Ok((path, occupant))
    }

    /// What is there, with links followed.
    async fn occupant(&self, path: &ContainerPath) -> Result<Option<Occupant>> {
        match self {
            Self::Guest(guest) => {
                let seen = match guest.seen(path, true).await? {
                    Some(seen) => Some(seen),
                    // A link that leads nowhere is there, too.
                    None => guest.seen(path, false).await?,
                };
                Ok(seen.map(|entry| if entry.kind == FileKind::Dir { Occupant::Dir } else { Occupant::File }))
            }
            Self::Engine { runtime, id } => {
                let kind = path_kind(*runtime, id, path).await?;
                Ok(kind.map(|kind| if kind == PathKind::Dir { Occupant::Dir } else { Occupant::File }))
            }
        }
    }

    /// The deepest directory that is there, of those above a path.
    pub(super) async fn directory_above(&self, path: &ContainerPath) -> Result<ContainerPath> {
        let mut above = path.parent();
        while let Some(dir) = above.filter(|dir| *dir != ContainerPath::root()) {
            if self.occupant(&dir).await? == Some(Occupant::Dir) {
                return Ok(dir);
            }
            above = dir.parent();
        }
        Ok(ContainerPath::root())
    }

    /// Makes sure that nothing is at a path. `true` for a directory, below which there may be something.
    ///
    /// # Errors
    /// [`Error::PathExists`]; [`Engine::Unsupported`] if that is unknown: an engine has the same answer for a path that is
    /// missing and for one that it cannot pack.
    pub(super) async fn ensure_no_file(&self, path: &ContainerPath) -> Result<bool> {
        match self.occupant(path).await? {
            Some(Occupant::Dir) => return Ok(true),
            Some(Occupant::File) => return Err(exists(path)),
            None => {}
        }
        match self {
            Self::Guest(_) => Ok(false),
            Self::Engine { runtime, .. } => {
                Err(Engine::Unsupported { engine: runtime.kind(), capability: Capability::Guest }.into())
            }
        }
    }
}

pub(super) fn exists(path: &ContainerPath) -> Error {
    Error::PathExists { path: path.to_string(), side: "in the container" }
}

/// The entry at a path, if a copy of that kind can neither replace nor fill it.
pub(super) fn check_kind(path: &ContainerPath, occupant: Option<Occupant>, copies_dir: bool) -> Result<()> {
    match (occupant, copies_dir) {
        (Some(Occupant::File), true) | (Some(Occupant::Dir), false) => {
            Err(Error::OtherKind { path: path.to_string(), side: "in the container" })
        }
        _ => Ok(()),
    }
}

pub(super) fn joined(path: &ContainerPath, name: &str) -> Result<ContainerPath> {
    let unreadable = |err| Engine::Unreadable { verb: "copy", detail: format!("{err}") };
    Ok(path.join(name).map_err(unreadable)?)
}

/// The files of a container, as a user whom its guest acts for.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuestFiles<'a> {
    pub(super) link: &'a Link,
    pub(super) user: Ids,
}

impl GuestFiles<'_> {
    pub(super) fn at(&self, path: &ContainerPath, follow: bool) -> FileRef {
        FileRef { user: UserSpec::Ids { uid: self.user.uid, gid: Some(self.user.gid) }, path: path.to_string(), follow }
    }

    /// What is there, if anything is.
    pub(super) async fn seen(&self, path: &ContainerPath, follow: bool) -> Result<Option<FileEntry>> {
        match self.link.stat(self.at(path, follow)).await {
            Ok(entry) => Ok(Some(entry)),
            Err(Engine::Refused(fault)) if matches!(fault.code, ErrorCode::NotFound | ErrorCode::NoDirectory) => {
                Ok(None)
            }
            Err(err) => Err(err.into()),
        }
    }
}

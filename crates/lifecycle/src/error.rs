//! What can go wrong with a container, by what a caller can do about it.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use coracle_archive::transfer;
use coracle_runtime::PolicyRefusal;
use coracle_types::{ContainerName, ContainerPath, NetworkName, StoredFileError};

/// The result of an act on a container.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of object that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// A container.
    Container,
    /// A network.
    Network,
    /// A volume.
    Volume,
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Container => "container",
            Self::Network => "network",
            Self::Volume => "volume",
        })
    }
}

/// What keeps work from being saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveObstacle {
    /// It is larger than one save may be.
    Size,
    /// It takes longer than a removal may.
    Time,
    /// The state directory cannot be written.
    Disk,
    /// The container cannot be read.
    Unreadable,
}

/// Failures, one variant a reaction.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing has that name, neither a managed object nor another.
    #[error("no {kind} `{name}`")]
    NotFound {
        /// What was looked for.
        kind: ResourceKind,
        /// As it was named.
        name: String,
        /// Similar names of managed objects.
        near: Vec<String>,
    },
    /// It exists and is not managed by Coracle.
    #[error("{kind} `{name}` exists and is not managed by coracle")]
    NotManaged {
        /// What it is.
        kind: ResourceKind,
        /// As it was named.
        name: String,
    },
    /// The name belongs to something else already.
    #[error("a container named `{name}` already exists{}", if *.ours { "" } else { " and is not managed by Coracle" })]
    NameTaken {
        /// The name.
        name: ContainerName,
        /// Whether it is managed by Coracle.
        ours: bool,
        /// It runs.
        running: Option<bool>,
    },
    /// The name of a network belongs to something else already.
    #[error("a network named `{name}` already exists{}", if *.ours { "" } else { " and is not managed by Coracle" })]
    NetworkTaken {
        /// The name.
        name: NetworkName,
        /// Whether it is managed by Coracle.
        ours: bool,
        /// How it differs from the request.
        differs: Vec<&'static str>,
    },
    /// Containers still use it.
    #[error("{kind} `{name}` is used by {}", .containers.join(", "))]
    InUse {
        /// What it is.
        kind: ResourceKind,
        /// Its name.
        name: String,
        /// Who uses it.
        containers: Vec<String>,
    },
    /// It is managed by Coracle, and is created and removed together with another object.
    #[error("{kind} `{name}` is removed with the object that it was created for")]
    Belongs {
        /// What it is.
        kind: ResourceKind,
        /// Its name.
        name: String,
    },
    /// Another call holds the container.
    #[error("`{name}` is held by another call")]
    Busy {
        /// What is held.
        name: String,
    },
    /// As many containers as may be.
    #[error("there are {current} containers, and the limit is {limit}")]
    LimitReached {
        /// The limit.
        limit: usize,
        /// How many there are.
        current: usize,
        /// The setting that says so.
        setting: &'static str,
    },
    /// The policy refuses it.
    #[error(transparent)]
    Refused(#[from] PolicyRefusal),
    /// Who runs commands in it is not known.
    #[error("the exec user of `{0}` is not known")]
    UnknownUser(ContainerName),
    /// A path inside is missing.
    #[error("no `{0}` in the container")]
    NoSuchPath(ContainerPath),
    /// A path exists and may not be replaced.
    #[error("`{path}` exists {side}")]
    PathExists {
        /// Which path.
        path: String,
        /// Where: inside or on the host.
        side: &'static str,
    },
    /// Something of another kind is there, which a copy never replaces: a directory for a file, or the other way round.
    #[error(
        "`{path}` exists {side}, and is of another kind: a file never replaces a directory, nor a directory a file"
    )]
    OtherKind {
        /// The path.
        path: String,
        /// Of which side.
        side: &'static str,
    },
    /// A host path cannot be used.
    #[error(transparent)]
    HostPath(#[from] coracle_host::fs::HostPathError),
    /// A transfer ended early.
    #[error("the copy ended early")]
    Copy(#[source] transfer::Error),
    /// Work that only the container has cannot be saved: it was stopped, and nothing was removed.
    #[error("unsaved work in `{}` cannot be saved: {reason}", paths.join("`, `"))]
    SaveFailed {
        /// Its path.
        paths: Vec<String>,
        /// Why.
        reason: String,
        /// The obstacle, if the user can remove it.
        obstacle: SaveObstacle,
    },
    /// The state directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No engine is available, for the reason that the source of engines gives.
    #[error("no engine")]
    NoEngine(#[source] Box<coracle_types::failure::Failure>),
    /// The engine refused or failed.
    #[error(transparent)]
    Runtime(#[from] coracle_types::Error),
    /// Several acts failed; each has its own reason.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Error>),
}

/// A state directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It, or a file in it, belongs to another user.
    #[error("`{}` belongs to another user", .0.display())]
    Owner(PathBuf),
    /// A link is in place of one of Coracle's directories or files.
    #[error("`{}` is a link or no plain file", .0.display())]
    Link(PathBuf),
    /// The key is damaged: its signatures cannot be verified.
    #[error("`{}` is damaged", .0.display())]
    Key(PathBuf),
    /// A newer version of Coracle wrote it, and it stays as it is.
    #[error("`{}` was written by a newer version of Coracle", .0.display())]
    Newer(PathBuf),
    /// The file system keeps no locks.
    #[error("`{}` is on a file system without locks", .0.display())]
    NoLocks(PathBuf),
    /// The system refused.
    #[error("cannot use `{}`", path.display())]
    Io {
        /// Which path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl StoreError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }
}

impl From<StoredFileError> for StoreError {
    fn from(err: StoredFileError) -> Self {
        match err {
            StoredFileError::Newer(file) => Self::Newer(file),
            StoredFileError::Damaged { ref file, .. } => Self::io(&file.clone())(err.into()),
        }
    }
}

pub(crate) fn one_or_several(mut failed: Vec<Error>) -> Error {
    if failed.len() == 1 { failed.remove(0) } else { Error::Several(failed) }
}

//! Errors of getting an image.

use std::time::Duration;
use std::{fmt, io};

use coracle_types::{Excerpt, ImageId, ImageRef};

/// Why there is no image.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not local, and was not to be pulled.
    #[error("no image `{0}` on this engine")]
    NotFound(ImageRef),
    /// The registry refused it, or no registry answers.
    #[error("image `{image}` could not be pulled: {excerpt}")]
    PullFailed {
        /// The image.
        image: ImageRef,
        /// The output of the engine, or Coracle's reason.
        excerpt: Excerpt,
    },
    /// The registry answered too slowly.
    #[error("image `{image}` was not pulled within {} s", after.as_secs())]
    PullTimeout {
        /// The image.
        image: ImageRef,
        /// The deadline.
        after: Duration,
    },
    /// No registry answers, and no base could be built instead.
    #[error("no base image could be made (while {stage})")]
    BaseBuildFailed {
        /// The stage that failed.
        stage: BaseStage,
        /// The reason.
        #[source]
        source: BaseError,
    },
    /// The built image contains more than it may, and was removed.
    #[error("the built image was discarded: {what}")]
    Unfit {
        /// The reason.
        what: String,
    },
    /// The name belongs to another image than the pinned one.
    #[error("`{image}` is another image than before: {found} in place of {pinned}")]
    Changed {
        /// The name.
        image: ImageRef,
        /// The pinned image.
        pinned: ImageId,
        /// The image with the name.
        found: ImageId,
    },
    /// A file of Coracle could not be used.
    #[error("cannot {what}")]
    State {
        /// The action.
        what: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Another failure of the engine.
    #[error(transparent)]
    Engine(#[from] coracle_types::Error),
}

/// A stage of building a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseStage {
    /// Choosing the method.
    Choose,
    /// Waiting for another process that builds the same base.
    Lock,
    /// Packing packages that are installed on the host.
    Pack,
    /// Downloading and unpacking packages from a mirror.
    Mirror,
    /// Importing the result into the engine.
    Import,
}

impl BaseStage {
    /// The name of the stage in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Choose => "choose",
            Self::Lock => "lock",
            Self::Pack => "pack",
            Self::Mirror => "mirror",
            Self::Import => "import",
        }
    }
}

impl fmt::Display for BaseStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Choose => "choosing how",
            Self::Lock => "waiting for the lock",
            Self::Pack => "packing this host's packages",
            Self::Mirror => "installing from the mirror",
            Self::Import => "importing it",
        })
    }
}

/// Why building a base failed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The host's packages are unsuitable, and no program that could download others is installed.
    #[error("{why}, and neither `mmdebstrap` nor `debootstrap` is installed")]
    NoWay {
        /// Why the host's packages are unsuitable.
        why: String,
    },
    /// A configured value cannot be used.
    #[error("{setting} `{}` cannot be used: {why}", value.escape_debug())]
    Setting {
        /// `mirror` or `suite`.
        setting: &'static str,
        /// The value.
        value: String,
        /// The reason.
        why: &'static str,
    },
    /// A program of the host failed.
    #[error("`{program}` failed (exit {exit}): {excerpt}")]
    Program {
        /// The program.
        program: &'static str,
        /// Its exit status.
        exit: i32,
        /// Its output.
        excerpt: Excerpt,
    },
    /// A file could not be read or written.
    #[error("cannot {what}")]
    Io {
        /// The action.
        what: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The engine, or a program of the host, could not be used.
    #[error(transparent)]
    Runtime(#[from] coracle_types::Error),
}

impl BaseError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what: what.into(), source }
    }

    pub(crate) fn at(self, stage: BaseStage) -> Error {
        Error::BaseBuildFailed { stage, source: self }
    }
}

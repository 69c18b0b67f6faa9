//! What can go wrong on the way to an image.

use std::time::Duration;
use std::{fmt, io};

use coracle_types::{Excerpt, ImageId, ImageRef};

/// Why there is no image.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not here, and was not to be fetched.
    #[error("no image `{0}` on this engine")]
    NotFound(ImageRef),
    /// The registry refused it, or no registry answers.
    #[error("image `{image}` could not be pulled: {excerpt}")]
    PullFailed {
        /// Which image.
        image: ImageRef,
        /// The engine's words, or ours.
        excerpt: Excerpt,
    },
    /// The registry answered too slowly.
    #[error("image `{image}` was not pulled within {} s", after.as_secs())]
    PullTimeout {
        /// Which image.
        image: ImageRef,
        /// The deadline.
        after: Duration,
    },
    /// No registry answers, and no base could be made in its place.
    #[error("no base image could be made (while {stage})")]
    BaseBuildFailed {
        /// How far it came.
        stage: BaseStage,
        /// Why it broke off.
        #[source]
        source: BaseError,
    },
    /// What was built holds more than it may, and is not kept.
    #[error("the image that was built is not kept: {what}")]
    Unfit {
        /// What is wrong with it.
        what: String,
    },
    /// The name belongs to another image than the one that is meant by it.
    #[error("`{image}` is another image than before: {found} in place of {pinned}")]
    Changed {
        /// The name.
        image: ImageRef,
        /// The image that is meant.
        pinned: ImageId,
        /// The one that has the name.
        found: ImageId,
    },
    /// A file of ours could not be used.
    #[error("cannot {what}")]
    State {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The engine failed otherwise.
    #[error(transparent)]
    Engine(#[from] coracle_types::Error),
}

/// A stage of making a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseStage {
    /// Choosing how.
    Choose,
    /// Waiting for another process that makes the same base.
    Lock,
    /// Packing installed packages of this host.
    Pack,
    /// Downloading and unpacking packages from a mirror.
    Mirror,
    /// Importing the result into the engine.
    Import,
}

impl BaseStage {
    /// The word for answers.
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

/// Why making a base broke off.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The host's packages will not do, and neither program that could fetch others is there.
    #[error("{why}, and neither `mmdebstrap` nor `debootstrap` is installed")]
    NoWay {
        /// What the host's packages lack.
        why: String,
    },
    /// A configured value cannot be used.
    #[error("{setting} `{}` cannot be used: {why}", value.escape_debug())]
    Setting {
        /// Which: `mirror` or `suite`.
        setting: &'static str,
        /// What it is.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A program of the host failed.
    #[error("`{program}` failed (exit {exit}): {excerpt}")]
    Program {
        /// Which.
        program: &'static str,
        /// Its exit status.
        exit: i32,
        /// Its own words.
        excerpt: Excerpt,
    },
    /// A file could not be read or written.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
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

//! Why an image cannot be copied into the store, grouped by what the user can do about it.

use std::net::IpAddr;
use std::time::Duration;
use std::{fmt, io};

use coracle_archive::oci::ImageError;
use coracle_archive::tar::ReadError;
use coracle_types::{Error, Excerpt, ImageRef};

use super::BlobDigest;
use crate::store::StoreError;

/// The result of an operation on a source.
pub(crate) type Result<T, E = SourceError> = std::result::Result<T, E>;

/// A failure to copy an image into the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// The caller's deadline has passed.
    #[error("no image within {} s", after.as_secs())]
    DeadlinePassed { after: Duration },

    // The source does not have the image.
    #[error("{place} has no `{what}`")]
    NotFound { place: String, what: String },
    #[error(transparent)]
    Image(ImageError),
    #[error("its source does not know the digest, which has to be {expected}; leave `@{expected}` out of the name")]
    UnknownDigest { expected: BlobDigest },

    // The registry failed.
    #[error("cannot reach {host}: {reason}")]
    Unreachable { host: String, reason: String },
    #[error("{host} was silent for {} s", after.as_secs())]
    Silent { host: String, after: Duration },
    #[error("the transfer of {what} from {host} broke off {attempts} times: {reason}")]
    CutTransfer { host: String, what: String, attempts: u32, reason: String },
    #[error("{host} answers {status}{message}")]
    Status { host: String, status: u16, message: String },
    #[error(
        "{host} gives it only to known users, if it exists; log in with `docker login {host}` or `podman login {host}`"
    )]
    LoginRequired { host: String },
    #[error(
        "{host} refuses the credentials from {origin}; log in again with `docker login {host}` or `podman login {host}`"
    )]
    LoginRefused { host: String, origin: String },
    #[error("the credentials for {host} cannot be read from {origin}: {why}")]
    Credentials { host: String, origin: String, why: String },
    #[error("{host} redirects to {target}: {why}")]
    Redirect { host: String, target: String, why: &'static str },
    #[error("{host} leads to `{target}`, whose address {address} is not public")]
    PrivateAddress { host: String, target: String, address: IpAddr },
    #[error("{host} demands a login that is not supported: {why}")]
    Challenge { host: String, why: String },
    #[error("the certificates in `{file}` cannot be used: {why}")]
    Certificates { file: String, why: String },

    // This machine failed.
    #[error("`{program}` failed (exit {exit}): {excerpt}")]
    Program { program: &'static str, exit: i32, excerpt: Excerpt },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] Error),
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
}

impl From<ImageError> for SourceError {
    fn from(err: ImageError) -> Self {
        match err {
            ImageError::Io(source) => Self::io("cannot read the image layout")(source),
            other => Self::Image(other),
        }
    }
}

impl From<ReadError> for SourceError {
    fn from(err: ReadError) -> Self {
        match err {
            ReadError::Io(source) => Self::io("cannot read an archive")(source),
            other => ImageError::from(other).into(),
        }
    }
}

impl SourceError {
    /// For `map_err`: a system error. `what` says what failed.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// Whether another attempt may succeed, because the network or the deadline was the reason and not the image.
    pub(crate) fn is_worth_another_attempt(&self) -> bool {
        matches!(
            self,
            Self::DeadlinePassed { .. } | Self::Unreachable { .. } | Self::Silent { .. } | Self::CutTransfer { .. }
        )
    }

    pub(crate) fn malformed(what: &'static str, why: &dyn fmt::Display) -> Self {
        ImageError::malformed(what, why).into()
    }

    /// The error for more bytes than allowed.
    pub(crate) fn too_large(what: impl Into<String>, limit: u64) -> Self {
        ImageError::TooLarge { what: what.into(), limit }.into()
    }

    /// Converts it to the engine's error for this image.
    pub(crate) fn into_error(self, image: &ImageRef) -> Error {
        match self {
            Self::DeadlinePassed { after } => Error::TimedOut { verb: "pull", after },
            Self::Engine(err) => err,
            Self::Io { what, source } | Self::Store(StoreError::Io { what, source }) => {
                Error::Host { what: format!("`{image}` could not be pulled: {what}"), source }
            }
            other => {
                let excerpt = Excerpt::from_bytes(other.to_string().as_bytes());
                Error::PullFailed { image: image.clone(), excerpt }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_becomes_what_a_caller_can_act_on() {
        let image = ImageRef::parse("localhost:5000/x:1").unwrap();
        let late = SourceError::DeadlinePassed { after: Duration::from_secs(3) };
        assert!(matches!(late.into_error(&image), Error::TimedOut { verb: "pull", .. }));
        let full = SourceError::io("cannot write a layer")(io::ErrorKind::StorageFull.into());
        assert!(
            matches!(full.into_error(&image), Error::Host { source, .. } if source.kind() == io::ErrorKind::StorageFull)
        );
        let unknown = SourceError::from(ImageError::MediaType { what: "layer", media_type: "a/\x1b[31m".into() });
        let failed = unknown.into_error(&image).to_string();
        assert_eq!(
            failed,
            "image `localhost:5000/x:1` could not be pulled: its layer has the unknown media type `a/\\u{1b}[31m`"
        );
    }
}

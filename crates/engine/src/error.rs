//! Failures of this engine's parts in the words of the trait.

use std::fmt::Display;

use coracle_types::{Capability, EngineKind, Error, Excerpt};

use crate::store::StoreError;

impl From<StoreError> for Error {
    fn from(err: StoreError) -> Self {
        store_error("image", err)
    }
}

/// A failure of the store in the words of the trait.
pub(crate) fn store_error(verb: &'static str, err: StoreError) -> Error {
    match err {
        StoreError::Io { what, source } => Error::Host { what: what.to_owned(), source },
        refusal => refused(verb, refusal),
    }
}

/// What this engine does not do, as an engine's program would say it.
pub(crate) fn refused(verb: &'static str, why: impl Display) -> Error {
    Error::Engine { verb, exit: 1, excerpt: Excerpt::from_bytes(why.to_string().as_bytes()) }
}

pub(crate) fn unsupported(capability: Capability) -> Error {
    Error::Unsupported { engine: EngineKind::Embedded, capability }
}

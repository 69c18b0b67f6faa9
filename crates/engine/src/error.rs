//! Converts failures of this engine to errors of the engine traits.

use std::fmt::Display;

use coracle_types::{Capability, EngineKind, Error, Excerpt};

use crate::store::StoreError;

impl From<StoreError> for Error {
    fn from(err: StoreError) -> Self {
        store_error("image", err)
    }
}

/// Converts a failure of the store.
pub(crate) fn store_error(verb: &'static str, err: StoreError) -> Error {
    match err {
        StoreError::Io { what, source } => Error::Host { what: what.to_owned(), source },
        refusal => refused(verb, refusal),
    }
}

/// The error for a request that this engine refuses, in the form of a failed engine program.
pub(crate) fn refused(verb: &'static str, why: impl Display) -> Error {
    Error::Engine { verb, exit: 1, excerpt: Excerpt::from_bytes(why.to_string().as_bytes()) }
}

pub(crate) fn unsupported(capability: Capability) -> Error {
    Error::Unsupported { engine: EngineKind::Embedded, capability }
}

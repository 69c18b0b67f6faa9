//! Failures of the image store, in the words of engines.

use coracle_runtime::{Error, Excerpt};

use crate::store::StoreError;

impl From<StoreError> for Error {
    fn from(err: StoreError) -> Self {
        match err {
            StoreError::Io { what, source } => Self::Host { what: what.to_owned(), source },
            refused => {
                Self::Engine { verb: "image", exit: 1, excerpt: Excerpt::from_bytes(refused.to_string().as_bytes()) }
            }
        }
    }
}

//! Images: unpacked layers by digest, and the images made of them.
//!
//! | module | content |
//! |---|---|
//! | `digest` | digests of layers |
//! | `error` | failures |
//! | `layer` | what is known of an unpacked layer |
//! | `addition` | layers and images that are being added |
//! | `query` | images found, listed, tagged, removed |
//! | `derive` | import, commit, export |
//! | `care` | holds, garbage collection, verification |

mod addition;
mod care;
mod derive;
mod digest;
mod error;
mod layer;
mod query;

use std::io;
use std::path::PathBuf;

pub(crate) use addition::{Addition, Compression, LayerLimits, NewImage, NewLayer};
pub(crate) use care::{DamageReport, GarbageReport, LayerHold};
pub(crate) use derive::CommitSource;
pub(crate) use digest::DiffId;
pub(crate) use error::{LayerRefusal, Result, StoreError};
pub(crate) use layer::LayerRecord;

use crate::directories::Directories;
use crate::ids::Privileges;

/// The images of one data directory. Processes share it under locks; each change is complete or absent.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    privileges: Privileges,
}

impl Store {
    pub(crate) fn open(directories: &Directories, privileges: Privileges) -> io::Result<Self> {
        Ok(Self { dir: directories.store(), privileges })
    }
}

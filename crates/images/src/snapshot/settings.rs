//! What snapshots are kept with.

use std::path::PathBuf;

use coracle_runtime::labels::Signer;

/// What snapshots are kept with. Everything that comes from configuration or host is given.
#[derive(Clone, Debug)]
pub struct Snapshots {
    /// Signs the labels of images.
    pub signer: Signer,
    /// The directory of locks.
    pub locks: PathBuf,
    /// Version of the program, for the label.
    pub version: String,
}

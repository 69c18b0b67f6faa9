//! What cached images are kept with.

use std::path::PathBuf;

use coracle_runtime::labels::Signer;

/// What cached images are kept with. Everything that comes from configuration, clock or host is given.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Signs the labels of images.
    pub signer: Signer,
    /// A directory of ours: which image was found for what, and when it was last used.
    pub dir: PathBuf,
    /// The directory of locks.
    pub locks: PathBuf,
    /// Version of the program, for the label.
    pub version: String,
}

//! The settings for building a base without a registry.

use std::path::PathBuf;
use std::time::Duration;

use coracle_runtime::labels::Signer;

/// The settings for building a base without a registry, with all values from configuration, clock and host.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// The root of the system whose packages may be used: `/`.
    pub root: PathBuf,
    /// Mirror to use if the host's packages are unsuitable (`images.debian_mirror`).
    pub mirror: Option<String>,
    /// Suite for that case (`images.debian_suite`).
    pub suite: Option<String>,
    /// Time limit of programs that download packages (`images.build_timeout`).
    pub build_timeout: Duration,
    /// Locked while a base is built, so that concurrent processes build it once.
    pub lock_file: PathBuf,
    /// Directory for the tar before the import: about 250 MB, 600 MB if packages are downloaded.
    pub temp_dir: PathBuf,
    /// Signs the labels of the base.
    pub signer: Signer,
    /// Version of the program, for the label.
    pub version: String,
    /// The present time (RFC 3339), for the label.
    pub created: String,
}

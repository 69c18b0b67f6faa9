//! How a base is made without a registry.

use std::path::PathBuf;
use std::time::Duration;

use coracle_runtime::labels::Signer;

/// How a base is made without a registry. Everything that comes from configuration, clock or host is given.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// The root of the system whose packages may be taken: `/`.
    pub root: PathBuf,
    /// Mirror for the case that the host's packages will not do (`images.debian_mirror`).
    pub mirror: Option<String>,
    /// Suite for that case (`images.debian_suite`).
    pub suite: Option<String>,
    /// For programs that fetch packages (`images.build_timeout`).
    pub build_timeout: Duration,
    /// Held while a base is made, so that processes that want it at once make it once.
    pub lock_file: PathBuf,
    /// Where the tar lies until it is imported: about 250 MB, 600 MB when packages are fetched.
    pub temp_dir: PathBuf,
    /// Signs the labels of the base.
    pub signer: Signer,
    /// Version of the program, for the label.
    pub version: String,
    /// The present time (RFC 3339), for the label.
    pub created: String,
}

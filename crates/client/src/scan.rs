//! Scans files in the container: which ones changed, where a repository is, which ones contain a secret.

use std::time::Duration;

use coracle_protocol::body::Bytes;
use coracle_protocol::{self as protocol, MAX_SESSION, SecretQuery};
#[cfg(doc)]
use coracle_types::Error;
use coracle_types::{ContainerPath, Result, Secret};
use jiff::Timestamp;
use zeroize::Zeroize as _;

use crate::call::too_long;
use crate::command::ms;
use crate::link::Link;

/// A scan as root: files and links below a directory, without following links or entering mounts. `/proc`, `/sys` and
/// `/.coracle` are not entered.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// The directory. It must not be a link itself.
    pub root: ContainerPath,
    /// Only entries that were changed since then, in their content or attributes.
    pub since: Option<Timestamp>,
    /// Names of directories that are not entered.
    pub prune: Vec<String>,
    /// Greatest depth; 1 is the directory itself. The limit is 128.
    pub depth: Option<u32>,
    /// Only entries with one of these names; then directories are reported, too.
    pub names: Option<Vec<String>>,
    /// When searching for secrets: larger files, in bytes, are not searched and not reported. At most 16 MiB.
    pub max_file: u64,
    /// Names of session variables whose values are searched for as well: only the guest has some of them.
    pub session: Vec<String>,
    /// Limit of entries, at most 100,000.
    pub max_entries: u64,
    /// Limit of the duration, after which the entries so far are returned. At most 10 minutes.
    pub within: Duration,
}

impl ScanOptions {
    /// Everything below a directory, for at most a minute.
    #[must_use]
    pub fn all(root: ContainerPath) -> Self {
        let (prune, session, within) = (Vec::new(), Vec::new(), Duration::from_secs(60));
        let (since, depth, names) = (None, None, None);
        Self { root, since, prune, depth, names, max_file: 1 << 20, session, max_entries: u64::MAX, within }
    }
}

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanReport {
    /// In no order.
    pub entries: Vec<protocol::ScanEntry>,
    /// A limit was reached, or an entry could not be read: there may be more.
    pub more: bool,
}

impl Link {
    /// Scans files. With needles, or with names in [`ScanOptions::session`], only files are reported that contain one of those
    /// values, in any encoding that programs use; values of less than 8 bytes are ignored.
    ///
    /// # Errors
    /// [`Error::Refused`]: the directory is missing or not a directory, or the needles exceed 1 MiB.
    pub async fn walk(&self, walk: ScanOptions, needles: &[Secret]) -> Result<ScanReport> {
        let mut call = request(walk, needles)?;
        let scanned = self.call(&call).await;
        call.holding.iter_mut().flat_map(|it| &mut it.values).for_each(|it| it.0.zeroize());
        scanned.map(|(entries, more)| ScanReport { entries, more })
    }
}

fn request(walk: ScanOptions, needles: &[Secret]) -> Result<protocol::ScanRequest> {
    if needles.iter().map(|it| it.len() + 4).sum::<usize>() > MAX_SESSION {
        return Err(too_long(format!("the values to search for exceed {} MiB", MAX_SESSION >> 20)));
    }
    let ScanOptions { root, since, prune, depth, names, max_file, session, max_entries, within } = walk;
    let searches = !needles.is_empty() || !session.is_empty();
    let values = needles.iter().map(|it| Bytes::from(it.reveal())).collect();
    let holding = searches.then_some(SecretQuery { values, session, max_file });
    let (root, since_ms, within_ms) = (root.to_string(), since.map(Timestamp::as_millisecond), ms(within));
    Ok(protocol::ScanRequest { root, since_ms, prune, depth, names, holding, max_entries, within_ms })
}

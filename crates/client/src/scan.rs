//! Going through the files inside: what was written, where a repository is, which files hold a secret.

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

/// What is walked, as root: files and links below a directory, never through a link, and never into what is mounted
/// there, so that no bind, tmpfs or volume is met. `/proc`, `/sys` and `/.coracle` are not entered.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// The directory. It must not be a link itself.
    pub root: ContainerPath,
    /// Only what was changed then or later, in its content or otherwise.
    pub since: Option<Timestamp>,
    /// Names of directories that are not entered.
    pub prune: Vec<String>,
    /// How far down; 1 is what is in the directory itself. No walk goes deeper than 128.
    pub depth: Option<u32>,
    /// Only what has one of these names; then directories are told, too.
    pub names: Option<Vec<String>>,
    /// Of a walk that searches: files of more bytes are not searched, and not told. At most 16 MiB.
    pub max_file: u64,
    /// Names of the session's variables whose values are searched for as well: the guest has those that nobody else kept.
    pub session: Vec<String>,
    /// At most so many entries, and never more than 100,000.
    pub max_entries: u64,
    /// After that time what was met is told. At most 10 minutes.
    pub within: Duration,
}

impl ScanOptions {
    /// All that is below a directory, for at most a minute.
    #[must_use]
    pub fn all(root: ContainerPath) -> Self {
        let (prune, session, within) = (Vec::new(), Vec::new(), Duration::from_secs(60));
        let (since, depth, names) = (None, None, None);
        Self { root, since, prune, depth, names, max_file: 1 << 20, session, max_entries: u64::MAX, within }
    }
}

/// What a walk met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// In no order.
    pub entries: Vec<protocol::ScanEntry>,
    /// A limit was reached, or something could not be looked at: there may be more.
    pub more: bool,
}

impl Link {
    /// Goes through files. With needles, or with names in [`ScanOptions::session`], only files are told that hold one of those
    /// values, in any form that programs write it in; values of less than 8 bytes are not looked for.
    ///
    /// # Errors
    /// [`Error::Refused`]: the directory is missing or none, or the needles have more than 1 MiB.
    pub async fn walk(&self, walk: ScanOptions, needles: &[Secret]) -> Result<ScanReport> {
        let mut call = request(walk, needles)?;
        let scanned = self.call(&call).await;
        call.holding.iter_mut().flat_map(|it| &mut it.values).for_each(|it| it.0.zeroize());
        scanned.map(|(entries, more)| ScanReport { entries, more })
    }
}

fn request(walk: ScanOptions, needles: &[Secret]) -> Result<protocol::ScanRequest> {
    if needles.iter().map(|it| it.len() + 4).sum::<usize>() > MAX_SESSION {
        return Err(too_long(format!("values of more than {} MiB cannot be searched for", MAX_SESSION >> 20)));
    }
    let ScanOptions { root, since, prune, depth, names, max_file, session, max_entries, within } = walk;
    let searches = !needles.is_empty() || !session.is_empty();
    let values = needles.iter().map(|it| Bytes::from(it.reveal())).collect();
    let holding = searches.then_some(SecretQuery { values, session, max_file });
    let (root, since_ms, within_ms) = (root.to_string(), since.map(Timestamp::as_millisecond), ms(within));
    Ok(protocol::ScanRequest { root, since_ms, prune, depth, names, holding, max_entries, within_ms })
}

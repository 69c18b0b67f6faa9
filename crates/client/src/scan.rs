//! Going through the files inside: what was written, where a repository is, which files hold a secret.

use std::time::Duration;

use coracle_protocol::{self as protocol, CallReply, MAX_SESSION, MAX_WALKED, Request, SecretQuery};
use coracle_types::{ContainerPath, Error, Result, Secret};
use jiff::Timestamp;
use zeroize::Zeroizing;

use crate::call::{Retry, attempt, refused, sendable};
use crate::channels::ReplyShape;
use crate::command::ms;
use crate::connection::ConnectionLost;
use crate::link::Link;

/// What a guest may take beyond the time that it was given: it is to tell what it met.
const GRACE: Duration = Duration::from_secs(15);

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
        let payload = payload(needles);
        let patience = walk.within + GRACE;
        let ask = sendable(Request::Walk(asked(walk, &payload)?))?;
        attempt("walk", patience, Retry::Once, || self.walk_once(ask.clone(), &payload)).await
    }

    async fn walk_once(&self, ask: Request, payload: &[u8]) -> Result<Result<ScanReport, ConnectionLost>> {
        let connection = self.connection().await?;
        // What was met is parsed whole, so only some may come at once.
        let _place = connection.list_place().await?;
        let talk = ReplyShape::Content { fits: |it| matches!(it, CallReply::Walked { .. }), most: MAX_WALKED as u64 };
        let mut channel = match connection.open_with_payload(ask, payload, talk).await {
            Ok(channel) => channel,
            Err(broken) => return Ok(Err(broken)),
        };
        let (answer, json) = match channel.content().await? {
            Ok(told) => told,
            Err(broken) => return Ok(Err(broken)),
        };
        let more = if let Some(CallReply::Walked { more }) = answer { more } else { true };
        let entries = serde_json::from_slice(&json)
            .map_err(|err| Error::Unreadable { verb: "walk", detail: format!("line {}", err.line()) })?;
        Ok(Ok(ScanReport { entries, more }))
    }
}

fn asked(walk: ScanOptions, payload: &[u8]) -> Result<protocol::ScanRequest> {
    let too_long = || {
        let message = format!("values of more than {} MiB cannot be searched for", MAX_SESSION >> 20);
        refused(protocol::RpcError::new(protocol::ErrorCode::TooLong, message))
    };
    let bytes = u32::try_from(payload.len()).ok().filter(|it| *it as usize <= MAX_SESSION).ok_or_else(too_long)?;
    let ScanOptions { root, since, prune, depth, names, max_file, session, max_entries, within } = walk;
    let searches = bytes > 0 || !session.is_empty();
    let holding = searches.then_some(SecretQuery { bytes, session, max_file });
    let (root, since_ms, within_ms) = (root.to_string(), since.map(Timestamp::as_millisecond), ms(within));
    Ok(protocol::ScanRequest { root, since_ms, prune, depth, names, holding, max_entries, within_ms })
}

/// Each with its length before it.
fn payload(needles: &[Secret]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(needles.iter().map(|it| it.len() + 4).sum()));
    for needle in needles {
        bytes.extend_from_slice(&u32::try_from(needle.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(needle.reveal());
    }
    bytes
}

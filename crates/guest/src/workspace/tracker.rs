//! Tracks the files of a workspace: those that tools read or wrote, and the result of the last scan.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::change_scan::Index;
use super::fingerprint::{FileStamp, Print};
use crate::protocol::workspace::TrackedFile;
use crate::protocol::{ErrorCode, RpcError};

/// Limit of tracked files. The least recently touched one is evicted first.
const MAX_TOUCHED: usize = 10_000;

/// The tracker of one workspace.
#[derive(Debug, Default)]
pub(super) struct FileTracker {
    table: Mutex<Table>,
    /// The last scan of the whole workspace.
    pub(super) index: Mutex<Option<Index>>,
    swept: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<String, TrackerRecord>,
    /// Paths by when they were touched.
    order: BTreeMap<u64, String>,
    last: u64,
}

/// A tracked file.
#[derive(Clone, Debug)]
struct TrackerRecord {
    size: u64,
    sha256: Option<[u8; 32]>,
    /// `None` if the record was restored from an earlier guest.
    stamp: Option<FileStamp>,
    version: u64,
    created_ms: i64,
    updated_ms: i64,
    last_tool: String,
    deleted: bool,
    seen: Option<[u8; 32]>,
    used: u64,
}

/// How the tracker learned about content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentSource {
    /// A tool read or wrote it.
    Tool,
    /// A scan found it.
    Scan,
}

impl FileTracker {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the first operation of this guest here.
    pub(super) fn is_first(&self) -> bool {
        !self.swept.swap(true, Ordering::Relaxed)
    }

    /// The version of a file, 1 if it was never touched.
    pub(super) fn version(&self, path: &str) -> u64 {
        self.table().files.get(path).map_or(1, |it| it.version)
    }

    /// The content that a tool read or wrote last.
    pub(super) fn seen(&self, path: &str) -> Option<[u8; 32]> {
        self.table().files.get(path).and_then(|it| it.seen)
    }

    /// Whether the content differs from the recorded one; `None` for a file that was never touched.
    pub(super) fn differs(&self, path: &str, print: &Print) -> Option<bool> {
        self.table().files.get(path).map(|it| it.deleted || !it.is(print))
    }

    /// Records content and returns its version.
    pub(super) fn touch(&self, path: &[u8], print: &Print, tool: &str, by: ContentSource) -> u64 {
        let Ok(path) = str::from_utf8(path) else { return 1 };
        let (now, mut table) = (now_ms(), self.table());
        let used = table.tick();
        let mut known = table.take(path).unwrap_or_else(|| TrackerRecord::new(print, now));
        if known.deleted || !known.is(print) {
            known.version += 1;
            known.updated_ms = now;
            known.deleted = false;
        }
        (known.size, known.sha256, known.stamp, known.used) = (print.size, print.sha256, Some(print.stamp), used);
        if by == ContentSource::Tool {
            known.seen = Some(print.seen());
        }
        tool.clone_into(&mut known.last_tool);
        let version = known.version;
        table.insert(path.to_owned(), known);
        version
    }

    /// Records the removal of files: all for which `gone` is true at and below a path.
    pub(super) fn removed(&self, path: &str, tool: &str, mut is_deleted: impl FnMut(&str) -> bool) {
        let now = now_ms();
        let below = |it: &String| is_below(it, path);
        let paths: Vec<_> = {
            let table = self.table();
            table.files.iter().filter(|it| !it.1.deleted && below(it.0)).map(|it| it.0.clone()).collect()
        };
        for path in paths.into_iter().filter(|it| is_deleted(it)) {
            if let Some(known) = self.table().files.get_mut(&path) {
                known.deleted = true;
                known.seen = None;
                known.updated_ms = now;
                tool.clone_into(&mut known.last_tool);
            }
        }
    }

    /// Paths of files that existed when they were checked last.
    pub(super) fn paths(&self) -> Vec<String> {
        self.table().files.iter().filter(|it| !it.1.deleted).map(|it| it.0.clone()).collect()
    }

    /// All tracked files, by path.
    pub(super) fn touched(&self) -> Vec<TrackedFile> {
        let mut all: Vec<_> = self.table().files.iter().map(|(path, known)| known.to_tracked_file(path)).collect();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        all
    }

    /// Restores the records of an earlier guest, except for files that this one has recorded already.
    pub(super) fn recall(&self, all: Vec<TrackedFile>) -> Result<(), RpcError> {
        let invalid = |what: String| RpcError::new(ErrorCode::Invalid, what);
        if all.len() > MAX_TOUCHED {
            return Err(invalid(format!("{} files; the limit is {MAX_TOUCHED}", all.len())));
        }
        let mut table = self.table();
        for touch in all {
            let used = table.tick();
            let known =
                TrackerRecord::recalled(&touch, used).ok_or_else(|| invalid("a hash is not a SHA-256".to_owned()))?;
            if !table.files.contains_key(&touch.path) {
                table.insert(touch.path, known);
            }
        }
        Ok(())
    }
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn take(&mut self, path: &str) -> Option<TrackerRecord> {
        let known = self.files.remove(path)?;
        self.order.remove(&known.used);
        Some(known)
    }

    fn insert(&mut self, path: String, known: TrackerRecord) {
        self.order.insert(known.used, path.clone());
        self.files.insert(path, known);
        while self.files.len() > MAX_TOUCHED {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.files.remove(&oldest);
        }
    }
}

impl TrackerRecord {
    fn new(print: &Print, now: i64) -> Self {
        Self {
            size: print.size,
            sha256: print.sha256,
            stamp: Some(print.stamp),
            version: 1,
            created_ms: now,
            updated_ms: now,
            last_tool: String::new(),
            deleted: false,
            seen: None,
            used: 0,
        }
    }

    /// Whether the recorded content is this one.
    fn is(&self, print: &Print) -> bool {
        match (self.sha256, print.sha256, self.stamp) {
            (Some(own), Some(other), _) => own == other,
            (_, _, Some(stamp)) => self.size == print.size && stamp == print.stamp,
            (_, _, None) => self.size == print.size && self.seen.is_none_or(|it| it == print.seen()),
        }
    }

    fn to_tracked_file(&self, path: &str) -> TrackedFile {
        TrackedFile {
            path: path.to_owned(),
            size: self.size,
            sha256: self.sha256.map(hex::encode),
            version: self.version,
            created_ms: self.created_ms,
            updated_ms: self.updated_ms,
            last_tool: self.last_tool.clone(),
            deleted: self.deleted,
            seen: self.seen.map(hex::encode),
        }
    }

    fn recalled(touch: &TrackedFile, used: u64) -> Option<Self> {
        let hash = |it: &Option<String>| match it {
            None => Some(None),
            Some(text) => {
                let mut hash = [0; 32];
                hex::decode_to_slice(text, &mut hash).ok().map(|()| Some(hash))
            }
        };
        Some(Self {
            size: touch.size,
            sha256: hash(&touch.sha256)?,
            stamp: None,
            version: touch.version,
            created_ms: touch.created_ms,
            updated_ms: touch.updated_ms,
            last_tool: touch.last_tool.clone(),
            deleted: touch.deleted,
            seen: hash(&touch.seen)?,
            used,
        })
    }
}

/// Whether a path is at or below another.
pub(super) fn is_below(path: &str, above: &str) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|it| it.is_empty() || it.starts_with('/'))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

//! Detects changes in a workspace since the last scan.
//!
//! A scan visits the workspace in order, as far as its bounds allow, and records each file. Only recorded files are
//! compared in the next scan, so a file that was beyond the bounds is not reported.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::fs::{AtFlags, FileType, Stat, statat};

use super::WorkspaceOperation;
use super::entry::text;
use super::fingerprint::Print;
use super::tracker::{ContentSource, FileTracker};
use crate::files::error::OperationResult;
use crate::files::walk::{TreeWalk, WalkLimits, by_parts};
use crate::protocol::workspace::{ChangeReport, SearchLimits};

/// Limit of files that are recorded between two scans.
const MAX_FILES: usize = 200_000;

/// The result of the last scan.
#[derive(Debug)]
pub(super) struct Index {
    files: HashMap<Vec<u8>, Meta>,
    /// Where it stopped; `None` after a complete scan.
    frontier: Option<Vec<u8>>,
    at_ns: i128,
}

/// Detects a write without reading the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    size: i64,
    changed: (i64, i64),
    status_changed: (i64, i64),
    inode: u64,
}

impl Meta {
    #[expect(clippy::unnecessary_cast, reason = "these are of another type on other machines")]
    fn from_stat(stat: &Stat) -> Self {
        let changed = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
        let status_changed = (stat.st_ctime as i64, stat.st_ctime_nsec as i64);
        Self { size: stat.st_size, changed, status_changed, inode: stat.st_ino }
    }

    fn status_changed_ns(&self) -> i128 {
        i128::from(self.status_changed.0) * 1_000_000_000 + i128::from(self.status_changed.1)
    }
}

/// The change of a file between two scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    Created,
    Modified,
    Deleted,
}

impl FileTracker {
    fn index(&self) -> MutexGuard<'_, Option<Index>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a tool wrote that file or, without a status, removed everything at and below a path: the next scan does not
    /// report it.
    pub(super) fn record_change(&self, path: &[u8], stat: Option<&Stat>) {
        let mut index = self.index();
        let Some(index) = index.as_mut() else { return };
        match stat {
            Some(stat) => _ = index.files.insert(path.to_vec(), Meta::from_stat(stat)),
            None => index
                .files
                .retain(|file, _| !file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')),
        }
    }
}

impl WorkspaceOperation<'_> {
    pub(super) fn changed(
        &self,
        hints: &[String],
        exclude: &[String],
        bounds: SearchLimits,
        tool: &str,
    ) -> OperationResult<ChangeReport> {
        let at_ns = now_ns();
        let scan = self.scan(exclude, bounds)?;
        let found = self.compare(&scan, hints, at_ns);
        let (mut changes, until) = (ChangeReport { complete: scan.complete, ..ChangeReport::default() }, scan.until);
        for (path, kind) in found {
            if !self.record(&path, kind, tool, std::time::Instant::now() < until) {
                continue;
            }
            let list = match kind {
                ChangeKind::Created => &mut changes.created,
                ChangeKind::Modified => &mut changes.modified,
                ChangeKind::Deleted => &mut changes.deleted,
            };
            changes.total += 1;
            if list.len() < bounds.most as usize {
                list.push(text(&path).0);
            }
        }
        // A file named in a hint counts as touched, changed or not.
        for hint in hints {
            if let Ok((entry, real)) = self.root.open_path(hint)
                && let Ok(file) = entry.read()
                && str::from_utf8(&real)
                    .is_ok_and(|it| self.tracker.differs(it, &Print::of_stat(&entry.stat)).is_none())
            {
                self.tracker.touch(&real, &Print::from_file(&file)?, tool, ContentSource::Scan);
            }
        }
        Ok(changes)
    }

    fn scan(&self, exclude: &[String], bounds: SearchLimits) -> OperationResult<ScanSnapshot> {
        let mut walk = TreeWalk::begin(self.root.dir(), WalkLimits::sorted(bounds), None, self.stop)?;
        let enters = |name: &[u8], _: &[u8]| !exclude.iter().any(|it| it.as_bytes() == name);
        let mut files = Vec::new();
        while let Some(entry) = walk.next(&enters) {
            if entry.kind == FileType::RegularFile
                && let Ok(stat) = statat(&entry.dir, entry.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)
                && FileType::from_raw_mode(stat.st_mode).is_file()
            {
                files.push((entry.path, Meta::from_stat(&stat)));
            }
        }
        let (complete, until) = (walk.is_complete(), walk.until());
        Ok(ScanSnapshot { files, complete, until, frontier: walk.frontier() })
    }

    /// Compares a scan with the previous one, and replaces that one. Files that only tools touched count as scanned when they
    /// were touched.
    fn compare(&self, scan: &ScanSnapshot, hints: &[String], at_ns: i128) -> Vec<(Vec<u8>, ChangeKind)> {
        let mut guard = self.tracker.index();
        let first = guard.is_none();
        let index = guard.get_or_insert_with(|| Index { files: HashMap::new(), frontier: None, at_ns });
        let mut changes = Vec::new();
        for (path, meta) in &scan.files {
            match index.files.entry(path.clone()) {
                Entry::Occupied(known) if known.get() == meta => {}
                Entry::Occupied(mut known) => {
                    // A tool may have written it since the scan.
                    let now = self.meta(path);
                    if now != Some(*known.get())
                        && let Some(now) = now
                    {
                        known.insert(now);
                        changes.push((path.clone(), ChangeKind::Modified));
                    }
                }
                Entry::Vacant(free) if first => _ = free.insert(*meta),
                Entry::Vacant(free) => {
                    free.insert(*meta);
                    let was_in_bounds = index.frontier.as_ref().is_none_or(|it| by_parts(path, it).is_lt());
                    if was_in_bounds {
                        changes.push((path.clone(), ChangeKind::Created));
                    } else if meta.status_changed_ns() >= index.at_ns {
                        changes.push((path.clone(), ChangeKind::Modified));
                    }
                }
            }
        }
        self.find_deleted(scan, index, &mut changes);
        self.check_known_files(hints, first, index, &mut changes);
        index.frontier.clone_from(&scan.frontier);
        index.at_ns = at_ns;
        while index.files.len() > MAX_FILES {
            let Some(one) = index.files.keys().next().cloned() else { break };
            index.files.remove(&one);
        }
        changes.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        changes.dedup_by(|one, other| one.0 == other.0);
        changes
    }

    /// Finds files of the previous scan that are missing in this one.
    fn find_deleted(&self, scan: &ScanSnapshot, index: &mut Index, changes: &mut Vec<(Vec<u8>, ChangeKind)>) {
        let found: std::collections::HashSet<&[u8]> = scan.files.iter().map(|it| it.0.as_slice()).collect();
        let in_bounds = |path: &[u8]| scan.frontier.as_ref().is_none_or(|end| by_parts(path, end).is_lt());
        index.files.retain(|path, _| {
            if found.contains(path.as_slice()) || !in_bounds(path) || self.meta(path).is_some() {
                return true;
            }
            changes.push((path.clone(), ChangeKind::Deleted));
            false
        });
    }

    /// Checks files outside the bounds as well: those that were touched, and those named in hints.
    fn check_known_files(
        &self,
        hints: &[String],
        first: bool,
        index: &mut Index,
        changes: &mut Vec<(Vec<u8>, ChangeKind)>,
    ) {
        let touched = self.tracker.paths();
        for (path, was_touched) in touched.iter().map(|path| (path, true)).chain(hints.iter().map(|path| (path, false)))
        {
            let found = self.root.open_path(path).ok().filter(|it| it.0.is(FileType::RegularFile));
            let Some((entry, real)) = found else {
                if was_touched {
                    index.files.remove(path.as_bytes());
                    changes.push((path.clone().into_bytes(), ChangeKind::Deleted));
                }
                continue;
            };
            let meta = Meta::from_stat(&entry.stat);
            let differs = || was_touched && self.tracker.differs(path, &Print::of_stat(&entry.stat)) == Some(true);
            let change = match index.files.insert(real.clone(), meta) {
                Some(known) if known != meta => Some(ChangeKind::Modified),
                Some(_) if !first => None,
                None if !first && !was_touched && meta.status_changed_ns() >= index.at_ns => Some(ChangeKind::Created),
                _ => differs().then_some(ChangeKind::Modified),
            };
            changes.extend(change.map(|kind| (real, kind)));
        }
    }

    fn meta(&self, path: &[u8]) -> Option<Meta> {
        let resolved = self.root.resolve_listed(path, crate::files::FinalLink::Itself, false).ok()?;
        let entry = resolved.entry.filter(|it| it.is(FileType::RegularFile))?;
        Some(Meta::from_stat(&entry.stat))
    }

    /// Records a change in the tracker, and returns whether to report it. If there is time, the content decides.
    fn record(&self, path: &[u8], kind: ChangeKind, tool: &str, time: bool) -> bool {
        let Ok(text) = str::from_utf8(path) else { return true };
        if kind == ChangeKind::Deleted {
            self.tracker.removed(text, tool, |it| it == text);
            return true;
        }
        let Ok((entry, _)) = self.root.open_path(text) else { return true };
        let read = || entry.read().and_then(|file| Print::from_file(&file));
        let print = if time { read().ok() } else { None }.unwrap_or_else(|| Print::of_stat(&entry.stat));
        let differs = self.tracker.differs(text, &print);
        if differs != Some(false) {
            self.tracker.touch(path, &print, tool, ContentSource::Scan);
        }
        differs != Some(false) || kind == ChangeKind::Created
    }
}

struct ScanSnapshot {
    files: Vec<(Vec<u8>, Meta)>,
    complete: bool,
    until: std::time::Instant,
    frontier: Option<Vec<u8>>,
}

fn now_ns() -> i128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

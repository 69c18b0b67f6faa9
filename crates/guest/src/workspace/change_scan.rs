//! Detects changes in a workspace since the last scan.
//!
//! A look goes through the workspace in order, as far as its bounds let it, and remembers what is where. Only that is held
//! against the next one, so that a file which was out of sight is no news.

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

/// Files that are remembered between two looks, at most.
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

    /// A tool made that file or, without a status, removed what is at and below a path: the next look has no news of it.
    pub(super) fn met(&self, path: &[u8], stat: Option<&Stat>) {
        let mut index = self.index();
        let Some(index) = index.as_mut() else { return };
        match stat {
            Some(stat) => _ = index.files.insert(path.to_vec(), Meta::from_stat(stat)),
            None => index.files.retain(|it, _| !it.strip_prefix(path).is_some_and(|it| it.is_empty() || it[0] == b'/')),
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
        let look = self.look_at_all(exclude, bounds)?;
        let news = self.news(&look, hints, at_ns);
        let (mut changes, until) = (ChangeReport { complete: look.complete, ..ChangeReport::default() }, look.until);
        for (path, news) in news {
            if !self.note(&path, news, tool, std::time::Instant::now() < until) {
                continue;
            }
            let list = match news {
                ChangeKind::Created => &mut changes.created,
                ChangeKind::Modified => &mut changes.modified,
                ChangeKind::Deleted => &mut changes.deleted,
            };
            changes.total += 1;
            if list.len() < bounds.most as usize {
                list.push(text(&path).0);
            }
        }
        // A file that was named belongs to those that were touched, changed or not.
        for hint in hints {
            if let Ok((there, real)) = self.root.open_path(hint)
                && let Ok(file) = there.read()
                && str::from_utf8(&real).is_ok_and(|it| self.memory.differs(it, &Print::of_stat(&there.stat)).is_none())
            {
                self.memory.touch(&real, &Print::from_file(&file)?, tool, ContentSource::Finding);
            }
        }
        Ok(changes)
    }

    fn look_at_all(&self, exclude: &[String], bounds: SearchLimits) -> OperationResult<ScanSnapshot> {
        let mut walk = TreeWalk::begin(self.root.dir(), WalkLimits::sorted(bounds), None, self.stop)?;
        let enters = |name: &[u8], _: &[u8]| !exclude.iter().any(|it| it.as_bytes() == name);
        let mut files = Vec::new();
        while let Some(met) = walk.next(&enters) {
            if met.kind == FileType::RegularFile
                && let Ok(stat) = statat(&met.dir, met.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)
                && FileType::from_raw_mode(stat.st_mode).is_file()
            {
                files.push((met.path, Meta::from_stat(&stat)));
            }
        }
        let (complete, until) = (walk.is_complete(), walk.until());
        Ok(ScanSnapshot { files, complete, until, frontier: walk.frontier() })
    }

    /// Holds a look against the one before, sorted, and remembers it. Files that only tools touched count as looked at
    /// then.
    fn news(&self, look: &ScanSnapshot, hints: &[String], at_ns: i128) -> Vec<(Vec<u8>, ChangeKind)> {
        let mut guard = self.memory.index();
        let first = guard.is_none();
        let index = guard.get_or_insert_with(|| Index { files: HashMap::new(), frontier: None, at_ns });
        let mut news = Vec::new();
        for (path, meta) in &look.files {
            match index.files.entry(path.clone()) {
                Entry::Occupied(known) if known.get() == meta => {}
                Entry::Occupied(mut known) => {
                    // A tool may have written it since the scan.
                    let now = self.meta(path);
                    if now != Some(*known.get())
                        && let Some(now) = now
                    {
                        known.insert(now);
                        news.push((path.clone(), ChangeKind::Modified));
                    }
                }
                Entry::Vacant(free) if first => _ = free.insert(*meta),
                Entry::Vacant(free) => {
                    free.insert(*meta);
                    let was_in_sight = index.frontier.as_ref().is_none_or(|it| by_parts(path, it).is_lt());
                    if was_in_sight {
                        news.push((path.clone(), ChangeKind::Created));
                    } else if meta.status_changed_ns() >= index.at_ns {
                        news.push((path.clone(), ChangeKind::Modified));
                    }
                }
            }
        }
        self.gone(look, index, &mut news);
        self.also(hints, first, index, &mut news);
        index.frontier.clone_from(&look.frontier);
        index.at_ns = at_ns;
        while index.files.len() > MAX_FILES {
            let Some(one) = index.files.keys().next().cloned() else { break };
            index.files.remove(&one);
        }
        news.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        news.dedup_by(|one, other| one.0 == other.0);
        news
    }

    /// Finds files of the last scan that this complete one does not have.
    fn gone(&self, look: &ScanSnapshot, index: &mut Index, news: &mut Vec<(Vec<u8>, ChangeKind)>) {
        let met: std::collections::HashSet<&[u8]> = look.files.iter().map(|it| it.0.as_slice()).collect();
        let in_sight = |it: &[u8]| look.frontier.as_ref().is_none_or(|end| by_parts(it, end).is_lt());
        index.files.retain(|path, _| {
            if met.contains(path.as_slice()) || !in_sight(path) || self.meta(path).is_some() {
                return true;
            }
            news.push((path.clone(), ChangeKind::Deleted));
            false
        });
    }

    /// Files that are looked at wherever they are: those that were touched, and those that were named.
    fn also(&self, hints: &[String], first: bool, index: &mut Index, news: &mut Vec<(Vec<u8>, ChangeKind)>) {
        let touched = self.memory.paths();
        for (path, was_touched) in touched.iter().map(|it| (it, true)).chain(hints.iter().map(|it| (it, false))) {
            let there = self.root.open_path(path).ok().filter(|it| it.0.is(FileType::RegularFile));
            let Some((there, real)) = there else {
                if was_touched {
                    index.files.remove(path.as_bytes());
                    news.push((path.clone().into_bytes(), ChangeKind::Deleted));
                }
                continue;
            };
            let meta = Meta::from_stat(&there.stat);
            let differs = || was_touched && self.memory.differs(path, &Print::of_stat(&there.stat)) == Some(true);
            let told = match index.files.insert(real.clone(), meta) {
                Some(known) if known != meta => Some(ChangeKind::Modified),
                Some(_) if !first => None,
                None if !first && !was_touched && meta.status_changed_ns() >= index.at_ns => Some(ChangeKind::Created),
                _ => differs().then_some(ChangeKind::Modified),
            };
            news.extend(told.map(|it| (real, it)));
        }
    }

    fn meta(&self, path: &[u8]) -> Option<Meta> {
        let place = self.root.resolve_listed(path, crate::files::FinalLink::Itself, false).ok()?;
        let there = place.entry.filter(|it| it.is(FileType::RegularFile))?;
        Some(Meta::from_stat(&there.stat))
    }

    /// Takes note of news; whether it is any. With time, its content decides.
    fn note(&self, path: &[u8], news: ChangeKind, tool: &str, time: bool) -> bool {
        let Ok(text) = str::from_utf8(path) else { return true };
        if news == ChangeKind::Deleted {
            self.memory.removed(text, tool, |it| it == text);
            return true;
        }
        let Ok((there, _)) = self.root.open_path(text) else { return true };
        let read = || there.read().and_then(|file| Print::from_file(&file));
        let print = if time { read().ok() } else { None }.unwrap_or_else(|| Print::of_stat(&there.stat));
        let differs = self.memory.differs(text, &print);
        if differs != Some(false) {
            self.memory.touch(path, &print, tool, ContentSource::Finding);
        }
        differs != Some(false) || news == ChangeKind::Created
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

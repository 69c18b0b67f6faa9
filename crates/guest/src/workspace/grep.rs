//! Finds lines that match a pattern, in the files of a workspace.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::fs::FileType;

use super::WorkspaceOperation;
use super::entry::text;
use super::glob::names_git;
use super::line_search::{Block, LineMatcher};
use super::reply_limit::weight;
use crate::files::dir::join;
use crate::files::error::OperationResult;
use crate::files::gitignore::IgnoreRules;
use crate::files::resolve::open_found;
use crate::files::walk::{TreeWalk, WalkEntry, WalkLimits};
use crate::os::blocking::CancelFlag;
use crate::protocol::patterns::Pattern;
use crate::protocol::workspace::{GrepMatch, MAX_WORKSPACE_REPLY, SearchLimits, WorkspaceReply};

/// Files in one batch for a thread.
const BATCH: usize = 32;

/// Queued batches. Each may hold directories open.
const WAITING: usize = 16;

/// Threads that search files, at most.
const THREADS: usize = 4;

/// Lines before and after a match, at most.
const CONTEXT: u32 = 5;

/// Limit of matches in a reply, in bytes.
const MAX_REPLY: usize = MAX_WORKSPACE_REPLY / 2;

/// The parameters of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grep<'a> {
    pub(super) path: &'a str,
    pub(super) pattern: &'a str,
    pub(super) glob: Option<&'a str>,
    pub(super) ignore_case: bool,
    pub(super) context: u32,
    pub(super) gitignore: bool,
}

impl WorkspaceOperation<'_> {
    pub(super) fn grep(&self, grep: &Grep<'_>, bounds: SearchLimits) -> OperationResult<WorkspaceReply> {
        let search = LineMatcher::new(grep.pattern, grep.ignore_case, grep.context.min(CONTEXT) as usize)?;
        let glob = grep.glob.filter(|it| !it.trim().is_empty()).map(Pattern::parse).transpose()?;
        let (entry, real) = self.root.open_path(grep.path)?;
        let matches = Mutex::new(MatchCollection::new(bounds.most as usize));
        if !entry.is(FileType::Directory) {
            let name = grep.path.rsplit('/').next().unwrap_or_default();
            if glob.is_none_or(|it| it.matches(name.as_bytes())) {
                let until = Instant::now() + std::time::Duration::from_millis(bounds.within_ms);
                let searcher = Searcher { search: &search, path: grep.path, matches: &matches, until, stop: self.stop };
                searcher.search_file(&search, 0, FoundFile { file: entry.read()?, path: b"" }, &mut Block::default());
            }
            return Ok(finish(matches, true));
        }
        let ignored = grep.gitignore.then(|| IgnoreRules::at(self.root.dir(), &real));
        let mut walk = TreeWalk::begin(&entry.fd, WalkLimits::sorted(bounds), ignored, self.stop)?;
        let git = names_git(grep.path) || glob.as_ref().is_some_and(Pattern::names_git);
        let searcher =
            Searcher { search: &search, path: grep.path, matches: &matches, until: walk.until(), stop: self.stop };
        let (to, from) = sync_channel::<Batch>(WAITING);
        let from = Mutex::new(from);
        // A thread inherits the user ids of this one, and ends within the scope.
        thread::scope(|scope| {
            for _ in 0..threads() {
                scope.spawn(|| searcher.work(&from));
            }
            feed(&mut walk, glob.as_ref(), git, &to);
            drop(to); // ends the threads that wait for a batch
        });
        Ok(finish(matches, walk.is_complete()))
    }
}

fn threads() -> usize {
    thread::available_parallelism().map_or(2, usize::from).clamp(2, THREADS)
}

/// Files in the order of the walk.
struct Batch {
    number: u64,
    files: Vec<(Arc<OwnedFd>, Vec<u8>, Vec<u8>)>,
}

fn feed(walk: &mut TreeWalk, glob: Option<&Pattern>, git: bool, to: &SyncSender<Batch>) {
    let mut batch = Batch { number: 0, files: Vec::new() };
    let selects = |found: &WalkEntry| {
        found.kind == FileType::RegularFile
            && glob.is_none_or(|it| it.matches(if it.has_slash() { &found.path } else { &found.name }))
    };
    let enters =
        |name: &[u8], path: &[u8]| (git || name != b".git") && glob.is_none_or(|it| !it.has_slash() || it.enters(path));
    while let Some(found) = walk.next(&enters) {
        if !selects(&found) {
            continue;
        }
        batch.files.push((found.dir, found.name, found.path));
        if batch.files.len() == BATCH {
            let next = Batch { number: batch.number + 1, files: Vec::with_capacity(BATCH) };
            if to.send(std::mem::replace(&mut batch, next)).is_err() {
                return;
            }
        }
    }
    let _ = to.send(batch);
}

struct Searcher<'a> {
    search: &'a LineMatcher,
    path: &'a str,
    matches: &'a Mutex<MatchCollection>,
    until: Instant,
    stop: &'a CancelFlag,
}

struct FoundFile<'a> {
    file: File,
    /// Relative to the searched directory; empty if a single file is searched.
    path: &'a [u8],
}

impl Searcher<'_> {
    fn work(&self, from: &Mutex<Receiver<Batch>>) {
        // A clone per thread: threads that share a regex would wait for each other.
        let (mut block, search) = (Block::default(), self.search.clone());
        loop {
            let batch = from.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = batch else { return };
            for (dir, name, path) in batch.files {
                if self.is_over() {
                    self.matches().complete = false;
                    break;
                }
                // A file that was removed, replaced or is not readable for this user is skipped.
                let Ok(Some(file)) = open_found(&dir, &name) else { continue };
                self.search_file(&search, batch.number, FoundFile { file, path: &path }, &mut block);
            }
        }
    }

    fn search_file(&self, search: &LineMatcher, batch: u64, found: FoundFile<'_>, block: &mut Block) {
        let FoundFile { mut file, path } = found;
        let (mut hits, mut state) = (Vec::new(), FileReply { left: self.matches().room(batch), path: None });
        let over = || self.is_over();
        let mut hit = |hit: GrepMatch| {
            // A single searched file has no relative path.
            let whole =
                || if path.is_empty() { self.path.to_owned() } else { text(&join(self.path.as_bytes(), path)).0 };
            let path = state.path.get_or_insert_with(whole).clone();
            let hit = GrepMatch { path, ..hit };
            let bytes = weight(&hit);
            let Some(left) = state.left.0.checked_sub(1).zip(state.left.1.checked_sub(bytes)) else { return false };
            state.left = left;
            hits.push(hit);
            true
        };
        match search.search(&mut file, block, &over, &mut hit) {
            Ok(0) => {}
            Ok(count) => {
                let omitted = count - hits.len() as u64;
                self.matches().add(batch, hits, omitted);
            }
            Err(_) => self.matches().complete = false,
        }
        if self.is_over() {
            self.matches().complete = false;
        }
    }

    fn is_over(&self) -> bool {
        self.stop.is_set() || Instant::now() >= self.until
    }

    fn matches(&self) -> std::sync::MutexGuard<'_, MatchCollection> {
        self.matches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct FileReply {
    left: (usize, usize),
    path: Option<String>,
}

/// The matches of all threads, and the number of omitted ones.
#[derive(Debug)]
struct MatchCollection {
    most: usize,
    batches: BTreeMap<u64, Hits>,
    all: (usize, usize),
    /// Batches from this number on are omitted.
    end: u64,
    omitted: u64,
    complete: bool,
}

#[derive(Debug, Default)]
struct Hits {
    hits: Vec<GrepMatch>,
    bytes: usize,
    /// Whether matches after the reported ones were omitted.
    omitted: bool,
}

impl MatchCollection {
    fn new(most: usize) -> Self {
        let most = most.min(100_000);
        Self { most, batches: BTreeMap::new(), all: (0, 0), end: u64::MAX, omitted: 0, complete: true }
    }

    /// How many matches and bytes of a batch still fit into the reply.
    fn room(&self, batch: u64) -> (usize, usize) {
        if batch >= self.end || self.batches.get(&batch).is_some_and(|it| it.omitted) {
            return (0, 0);
        }
        let own = self.batches.get(&batch).map_or((0, 0), |it| (it.hits.len(), it.bytes));
        (self.most.saturating_sub(own.0), MAX_REPLY.saturating_sub(own.1))
    }

    fn add(&mut self, batch: u64, hits: Vec<GrepMatch>, omitted: u64) {
        self.omitted += omitted;
        if batch >= self.end {
            self.omitted += hits.len() as u64;
            return;
        }
        let own = self.batches.entry(batch).or_default();
        own.omitted |= omitted > 0;
        let bytes = hits.iter().map(weight).sum::<usize>();
        own.bytes += bytes;
        self.all = (self.all.0 + hits.len(), self.all.1 + bytes);
        own.hits.extend(hits);
        // Drop the last batches if those before them fill the reply.
        while let Some(last) = self.batches.last_entry() {
            let rest = (self.all.0 - last.get().hits.len(), self.all.1 - last.get().bytes);
            if rest.0 < self.most && rest.1 < MAX_REPLY {
                return;
            }
            let (number, dropped) = last.remove_entry();
            self.end = number;
            self.all = rest;
            self.omitted += dropped.hits.len() as u64;
        }
    }
}

fn finish(matches: Mutex<MatchCollection>, complete: bool) -> WorkspaceReply {
    let MatchCollection { most, batches, mut omitted, complete: all, .. } =
        matches.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (mut matches, mut room, mut full) = (Vec::new(), MAX_REPLY, false);
    for (_, batch) in batches {
        for hit in batch.hits {
            let left = room.checked_sub(weight(&hit)).filter(|_| matches.len() < most && !full);
            match left {
                Some(left) => {
                    room = left;
                    matches.push(hit);
                }
                None => {
                    full = true;
                    omitted += 1;
                }
            }
        }
        full |= batch.omitted;
    }
    WorkspaceReply::Grepped { matches, omitted, complete: complete && all }
}

//! Saves through the engine, if the container is stopped or has no guest.
//!
//! Git cannot run here, so a work tree is saved whole if a file of it was written since the container was filled.
//! Modification times are the only criterion.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use coracle_archive::tar::{EntryKind, FileSpan, ReadError, Reader};
use coracle_archive::transfer::{MAX_PATH, Writer, plain_name, shown};
use coracle_runtime::ContainerRuntime;
use coracle_types::{ContainerPath, Error as Engine};
use tokio::time::{Instant, timeout_at};

use super::error::{PathError, SaveError};
use super::limits::{PRUNED, SaveLimits};
use super::manifest::{SavedItem, SavedKind};
use super::roots::Roots;
use super::writer::SaveWriter;
use crate::Store;
use crate::record::Record;

/// Work trees are looked for so deep below a root.
const TREE_DEPTH: usize = 4;

/// Entries of an archive that are looked at.
const MAX_ENTRIES: usize = 400_000;

/// How much larger an archive of the engine may be than the part that is saved: it includes files that can be restored
/// from elsewhere.
const SPOOL_FACTOR: u64 = 4;

/// Every container has this file; the engine sees to it.
const ALWAYS_THERE: &str = "/etc/hostname";

/// A container that is being saved by its engine.
pub(super) struct EngineSave<'a> {
    pub(super) runtime: &'a dyn ContainerRuntime,
    pub(super) store: &'a Store,
    pub(super) record: &'a Record,
    pub(super) until: Instant,
    pub(super) limits: SaveLimits,
}

/// An archive of the engine, with its entries by their path below its root.
#[derive(Debug)]
struct Spool {
    root: ContainerPath,
    entries: BTreeMap<String, SpoolEntry>,
    /// Names that cannot be saved.
    odd: Vec<String>,
}

#[derive(Clone, Debug)]
struct SpoolEntry {
    what: SpooledKind,
    mode: u32,
    mtime: u64,
}

#[derive(Clone, Debug)]
enum SpooledKind {
    Dir,
    File(FileSpan),
    Link(String),
    Special,
}

impl EngineSave<'_> {
    pub(super) async fn save(&self, out: &mut SaveWriter) -> Result<(), PathError> {
        let roots = Roots::from_record(self.record);
        let below = |it: &ContainerPath| {
            let workdir = roots.workdir.as_ref();
            workdir.is_some_and(|workdir| it.is_beneath(workdir.as_str()))
        };
        let home = roots.home.iter().filter(|it| !below(it));
        let mut own_files: Option<Spool> = None;
        for root in roots.workdir.iter().chain(home).chain(&roots.clones) {
            let failed = |error| PathError { path: root.to_string(), error };
            let fetched = timeout_at(self.until, self.fetch(root)).await.map_err(|_| failed(SaveError::TooSlow))?;
            let spool = match fetched {
                Err(SaveError::Inside(failure @ Engine::Engine { .. })) if own_files.is_none() => {
                    let exported = timeout_at(self.until, self.export(failure)).await;
                    let exported = exported.map_err(|_| failed(SaveError::TooSlow))?.map_err(failed)?;
                    own_files.insert(exported).below(root)
                }
                Err(SaveError::Inside(Engine::Engine { .. })) => own_files.as_ref().and_then(|files| files.below(root)),
                fetched => fetched.map_err(failed)?,
            };
            let Some(spool) = spool else { continue };
            self.keep(out, &spool, &roots).map_err(failed)?;
        }
        Ok(())
    }

    /// Reads all of the container's own files. Some engines cannot copy single paths of a container, since they create
    /// all its mounts for that and the source of a bind may be missing.
    async fn export(&self, failure: Engine) -> Result<Spool, SaveError> {
        let id = self.record.id.as_ref().ok_or(SaveError::Invalid("its id is not known"))?;
        let file = tempfile::tempfile_in(self.store.scratch()).map_err(SaveError::Disk)?;
        let into = file.try_clone().map_err(SaveError::Disk)?;
        match self.runtime.export(id, into, self.limits.max_bytes.saturating_mul(SPOOL_FACTOR)).await {
            Ok(()) => {}
            Err(Engine::TooLarge { .. }) => return Err(SaveError::TooLarge),
            Err(_) => return Err(failure.into()),
        }
        let read = tokio::task::spawn_blocking(move || Spool::read(ContainerPath::root(), file, 0)).await;
        read.map_err(|err| SaveError::Disk(io::Error::other(err)))?
    }

    /// `None` if the path is missing.
    async fn fetch(&self, root: &ContainerPath) -> Result<Option<Spool>, SaveError> {
        let id = self.record.id.as_ref().ok_or(SaveError::Invalid("its id is not known"))?;
        let spool = || tempfile::tempfile_in(self.store.scratch()).map_err(SaveError::Disk);
        let file = spool()?;
        let into = file.try_clone().map_err(SaveError::Disk)?;
        match self.runtime.download(id, root, into, self.limits.max_bytes.saturating_mul(SPOOL_FACTOR)).await {
            Ok(()) => {}
            Err(Engine::TooLarge { .. }) => return Err(SaveError::TooLarge),
            // The engines fail alike for a path that is missing and for all else.
            Err(failure @ Engine::Engine { .. }) => {
                let there = ContainerPath::parse(ALWAYS_THERE).expect("a plain path");
                return match self.runtime.download(id, &there, spool()?, 1 << 20).await {
                    Ok(()) => Ok(None),
                    Err(_) => Err(failure.into()),
                };
            }
            Err(err) => return Err(err.into()),
        }
        let root = root.clone();
        let read = tokio::task::spawn_blocking(move || Spool::read(root, file, 1)).await;
        read.map_err(|err| SaveError::Disk(io::Error::other(err)))?.map(Some)
    }

    fn keep(&self, out: &mut SaveWriter, spool: &Spool, roots: &Roots<'_>) -> Result<(), SaveError> {
        let root = &spool.root;
        let since = u64::try_from(roots.since.as_second()).unwrap_or(0);
        let own = |path: &str| join(root, path).is_none_or(|it| roots.own(&it));
        let trees = spool.trees();
        for tree in trees.iter().filter(|it| own(it)) {
            let path = join(root, tree).ok_or(SaveError::Invalid("the name of a git tree cannot be saved"))?;
            let within = spool.entries.iter().filter(|(path, _)| own(path));
            let entries: Vec<_> = within.filter_map(|(path, it)| Some((below(path, tree)?, it))).collect();
            // What came with a snapshot is older, and may be nowhere else.
            let touched = self.record.snapshot.is_some() || entries.iter().any(|(_, it)| it.mtime >= since);
            if touched {
                let mut item = SavedItem::new(path, SavedKind::Tree);
                spool.odd.iter().for_each(|it| item.left_out.add(it, "its name cannot be saved"));
                self.pack(out, item, spool, entries)?;
            }
        }
        if roots.workdir.as_ref() == Some(root) {
            let in_tree = |path: &str| trees.iter().any(|tree| below(path, tree).is_some());
            let is_new = |it: &SpoolEntry| it.mtime >= since && !matches!(it.what, SpooledKind::Dir);
            let all = spool.entries.iter().map(|(path, it)| (path.as_str(), it));
            let mut written: Vec<_> =
                all.filter(|(path, it)| is_new(it) && !in_tree(path) && !pruned(path) && own(path)).collect();
            let dirs: BTreeSet<&str> = written.iter().flat_map(|(path, _)| dirs_above(path)).collect();
            let dirs = dirs.into_iter().filter_map(|dir| Some((dir, spool.entries.get(dir)?)));
            written.extend(dirs.filter(|(_, entry)| matches!(entry.what, SpooledKind::Dir)));
            written.sort_by_key(|(path, it)| (it.size(), *path));
            self.pack(out, SavedItem::new(root.clone(), SavedKind::Files), spool, written)?;
        }
        Ok(())
    }

    /// Of a tree everything, of other files as many as fit.
    fn pack(
        &self,
        out: &mut SaveWriter,
        mut item: SavedItem,
        spool: &Spool,
        entries: Vec<(&str, &SpoolEntry)>,
    ) -> Result<(), SaveError> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut archive = out.archive()?;
        let mut over = None;
        for (inner, entry) in entries.into_iter().filter(|(inner, _)| !inner.is_empty() && !pruned(inner)) {
            if let Some(reason) = over {
                item.left_out.add(inner, reason);
                continue;
            }
            match spool.add(&mut archive.tar, &mut item, inner, entry) {
                Err(SaveError::TooLarge) if item.kind == SavedKind::Files => {
                    over = Some("it does not fit");
                    item.left_out.add(inner, "it does not fit");
                }
                done => done?,
            }
            if Instant::now() > self.until {
                if item.kind == SavedKind::Tree {
                    return Err(SaveError::TooSlow);
                }
                over = Some("there was no time left");
            }
        }
        out.keep_archive(&mut item, archive)?;
        out.add(item);
        Ok(())
    }
}

impl Spool {
    fn add(&self, writer: &mut Writer, item: &mut SavedItem, inner: &str, entry: &SpoolEntry) -> Result<(), SaveError> {
        let name = format!("{}/{inner}", item.top());
        match &entry.what {
            SpooledKind::Dir => writer.dir(&name, entry.mode, Some(entry.mtime))?,
            SpooledKind::Link(target) => item.add_link(writer, inner, target, Some(entry.mtime))?,
            SpooledKind::Special => item.left_out.add(inner, "it is neither a file nor a link"),
            SpooledKind::File(content) => {
                let mut growing = writer.begin(&name, entry.mode, Some(entry.mtime))?;
                let (mut content, mut buffer) = (content.clone(), vec![0; 1 << 16]);
                loop {
                    match content.read(&mut buffer).map_err(SaveError::Disk)? {
                        0 => break,
                        count => growing.write(&buffer[..count])?,
                    }
                }
                growing.end()?;
            }
        }
        Ok(())
    }

    /// The entries of an archive, each below as many parts of its name as are left out.
    fn read(root: ContainerPath, file: File, strip: usize) -> Result<Self, SaveError> {
        let unreadable = |_: ReadError| SaveError::Invalid("the engine's archive cannot be read");
        let mut reader = Reader::open(file).map_err(SaveError::Disk)?;
        let (mut entries, mut odd, mut bare) = (BTreeMap::<_, SpoolEntry>::new(), Vec::new(), false);
        while let Some(entry) = reader.next_entry().map_err(unreadable)? {
            if entries.len() + odd.len() >= MAX_ENTRIES {
                return Err(SaveError::Invalid("there are more files than can be looked at"));
            }
            // Podman names a volume of a stopped container `/`, and its content is directly below.
            bare |= entries.is_empty() && odd.is_empty() && entry.path == b"/";
            let inner = |it: String| match strip {
                0 => it,
                _ => it.split_once('/').map_or(String::new(), |(_, rest)| rest.to_owned()),
            };
            let inside = |name: &[u8]| {
                let name = Path::new(OsStr::from_bytes(name));
                match name.strip_prefix("/") {
                    Ok(rest) if bare && rest.as_os_str().is_empty() => Some(String::new()),
                    Ok(rest) if bare => plain_name(rest),
                    _ => plain_name(name).map(inner),
                }
            };
            let Some(path) = inside(&entry.path) else {
                odd.push(shown(&String::from_utf8_lossy(&entry.path)));
                continue;
            };
            let what = match entry.kind {
                EntryKind::Directory => SpooledKind::Dir,
                EntryKind::File { extents: None, .. } => SpooledKind::File(reader.content().map_err(unreadable)?),
                EntryKind::Symlink(target) => {
                    let target = String::from_utf8(target).ok().filter(|target| target.len() <= MAX_PATH);
                    target.map_or(SpooledKind::Special, SpooledKind::Link)
                }
                EntryKind::HardLink(target) => {
                    let first = inside(&target).and_then(|target| entries.get(&target));
                    first.map_or(SpooledKind::Special, |first| first.what.clone())
                }
                _ => SpooledKind::Special,
            };
            let mtime = u64::try_from(entry.mtime.seconds).unwrap_or(0);
            entries.insert(path, SpoolEntry { what, mode: entry.mode & 0o777, mtime });
        }
        Ok(Self { root, entries, odd })
    }

    /// The entries below a directory; `None` if there are none.
    fn below(&self, root: &ContainerPath) -> Option<Self> {
        let within = root.as_str().trim_start_matches('/');
        let inner = |(path, entry): (&String, &SpoolEntry)| Some((below(path, within)?.to_owned(), entry.clone()));
        let entries: BTreeMap<_, _> = self.entries.iter().filter_map(inner).collect();
        (!entries.is_empty()).then(|| Self { root: root.clone(), entries, odd: Vec::new() })
    }

    /// Work trees, outermost ones only: a whole tree has those within.
    fn trees(&self) -> BTreeSet<String> {
        let mut trees = BTreeSet::<String>::new();
        for path in self.entries.keys() {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let deep = above.split('/').filter(|it| !it.is_empty()).count();
            if name == ".git" && deep <= TREE_DEPTH && !pruned(above) {
                trees.insert(above.to_owned());
            }
        }
        let all = trees.clone();
        trees.retain(|it| !all.iter().any(|other| other != it && below(it, other).is_some()));
        trees
    }
}

impl SpoolEntry {
    fn size(&self) -> u64 {
        if let SpooledKind::File(content) = &self.what { content.size() } else { 0 }
    }
}

/// The path relative to a directory, if it is below that. The root is empty.
fn below<'a>(path: &'a str, dir: &str) -> Option<&'a str> {
    if dir.is_empty() || path == dir {
        return Some(if path == dir { "" } else { path });
    }
    path.strip_prefix(dir)?.strip_prefix('/')
}

/// The directories above a path, below the root.
fn dirs_above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

fn pruned(path: &str) -> bool {
    path.split('/').any(|it| PRUNED.contains(&it))
}

fn join(root: &ContainerPath, path: &str) -> Option<ContainerPath> {
    if path.is_empty() { Some(root.clone()) } else { root.join(path).ok() }
}

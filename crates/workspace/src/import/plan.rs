//! Plans an import from names, modes and sizes. Reads no content.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use coracle_host::tree::{DirHandle, Node};
use coracle_runtime::SkippedCounts;

use super::follow::{LinkError, MAX_HOPS, follow};
use super::{HostMount, ImportError};

/// Directories one in the other, at most.
const MAX_DEPTH: usize = 128;

/// The files of a directory that will be copied.
#[derive(Debug)]
pub(super) struct ImportPlan {
    pub(super) files: Vec<PlannedFile>,
    /// Their bytes together.
    pub(super) bytes: u64,
    pub(super) left_out: SkippedCounts,
}

/// A file that will be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedFile {
    /// Path in the workspace.
    pub(super) at: String,
    /// The source.
    pub(super) from: SourcePath,
}

/// A file of the host: the directory that its path begins at, and the parts of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourcePath {
    /// Reached through a symlink, so its path begins at the allowed directory.
    pub(super) linked: bool,
    pub(super) parts: Vec<OsString>,
}

/// The two directories that paths begin at.
#[derive(Debug)]
pub(super) struct Trees {
    mount: DirHandle,
    root: DirHandle,
}

impl Trees {
    pub(super) fn open(mount: &HostMount) -> Result<Self, ImportError> {
        let failed = |source| ImportError::Read { path: mount.name.clone(), source };
        let (own, root) =
            (DirHandle::from_path(&mount.host).map_err(failed)?, DirHandle::from_path(&mount.root).map_err(failed)?);
        Ok(Self { mount: own, root })
    }

    /// The directory that a file lies in.
    pub(super) fn dir(&self, from: &SourcePath) -> io::Result<DirHandle> {
        let tree = if from.linked { &self.root } else { &self.mount };
        let above = from.parts.len().saturating_sub(1);
        tree.descend(from.parts[..above].iter().map(OsString::as_os_str))
    }
}

/// Walks the directory.
pub(super) fn plan(mount: &HostMount, trees: &Trees) -> Result<ImportPlan, ImportError> {
    let own = mount.host.real().strip_prefix(mount.root.real()).unwrap_or(Path::new(""));
    let mut it = Planner {
        mount,
        trees,
        own: own.iter().map(OsStr::to_owned).collect(),
        plan: ImportPlan { files: Vec::new(), bytes: 0, left_out: SkippedCounts::default() },
        entries_seen: 0,
        above: Vec::new(),
    };
    let start = SourceDir {
        tree: trees.mount.clone(),
        from: SourcePath { linked: false, parts: Vec::new() },
        inner: String::new(),
    };
    it.dir(&start, 0)?;
    Ok(it.plan)
}

struct Planner<'a> {
    mount: &'a HostMount,
    trees: &'a Trees,
    /// Parts of the directory from the allowed one.
    own: Vec<OsString>,
    plan: ImportPlan,
    entries_seen: u64,
    /// Directories that are being gone through: a link to one of them leads in a circle.
    above: Vec<(u64, u64)>,
}

/// A directory on the way.
struct SourceDir {
    tree: DirHandle,
    from: SourcePath,
    /// Its path from the mounted directory, as its files will have it.
    inner: String,
}

impl Planner<'_> {
    fn dir(&mut self, here: &SourceDir, hops: usize) -> Result<(), ImportError> {
        let failed = |source| self.failed(&here.inner, source);
        let identity = here.tree.identity().map_err(failed)?;
        if self.above.contains(&identity) {
            self.plan.left_out.links += 1;
            return Ok(());
        }
        if self.above.len() >= MAX_DEPTH {
            self.plan.left_out.names += 1;
            return Ok(());
        }
        let entries = here.tree.entries().map_err(failed)?;
        self.above.push(identity);
        for (name, node) in entries {
            self.entries_seen += 1;
            if self.entries_seen > self.mount.max_entries {
                return Err(self.too_large(self.mount.max_entries, "files"));
            }
            self.entry(here, &name, node, hops)?;
        }
        self.above.pop();
        Ok(())
    }

    fn entry(&mut self, here: &SourceDir, name: &OsStr, node: Node, hops: usize) -> Result<(), ImportError> {
        let Some(text) = name.to_str() else {
            self.plan.left_out.names += 1;
            return Ok(());
        };
        let inner = if here.inner.is_empty() { text.to_owned() } else { format!("{}/{text}", here.inner) };
        let from = SourcePath { linked: here.from.linked, parts: below(&here.from.parts, name) };
        match node {
            Node::Dir if self.mount.filter.enters(&inner) => {
                let tree = here.tree.enter(name).map_err(|source| self.failed(&inner, source))?;
                self.dir(&SourceDir { tree, from, inner }, hops)
            }
            Node::Dir => Ok(()),
            Node::File => self.file(&here.tree, name, from, inner),
            Node::Link if !self.mount.follow => {
                // One whose name is not meant is not missing either.
                self.plan.left_out.links += u64::from(self.mount.filter.takes(&inner));
                Ok(())
            }
            Node::Link => self.link(here, name, inner, hops + 1),
            Node::Other => {
                self.plan.left_out.special += u64::from(self.mount.filter.takes(&inner));
                Ok(())
            }
        }
    }

    fn file(&mut self, dir: &DirHandle, name: &OsStr, from: SourcePath, inner: String) -> Result<(), ImportError> {
        if !self.mount.filter.takes(&inner) {
            return Ok(());
        }
        let size = dir.size(name).map_err(|source| self.failed(&inner, source))?;
        self.plan.bytes = self.plan.bytes.saturating_add(size);
        if self.plan.bytes > self.mount.max_bytes {
            return Err(self.too_large(self.mount.max_bytes, "bytes"));
        }
        let at = if self.mount.at.is_empty() { inner } else { format!("{}/{inner}", self.mount.at) };
        self.plan.files.push(PlannedFile { at, from });
        Ok(())
    }

    fn link(&mut self, here: &SourceDir, name: &OsStr, inner: String, hops: usize) -> Result<(), ImportError> {
        // Patterns are of where a link lies, so what no pattern could mean is not followed, either.
        let (takes, enters) = (self.mount.filter.takes(&inner), self.mount.filter.enters(&inner));
        if !takes && !enters {
            return Ok(());
        }
        let led = if hops > MAX_HOPS { Err(LinkError::Nowhere) } else { self.follow(here, name) };
        let parts = match led {
            Ok(parts) => parts,
            Err(LinkError::Nowhere) => {
                self.plan.left_out.links += 1;
                return Ok(());
            }
            Err(LinkError::Outside) => {
                let target = here.tree.link(name).unwrap_or_default();
                return Err(self.refused(inner, &Path::new("/").join(target)));
            }
            Err(LinkError::Io(source)) => return Err(self.failed(&inner, source)),
        };
        let real = self.mount.root.real().join(parts.iter().collect::<PathBuf>());
        if self.mount.policy.host_path_problem("mount", &real).is_some() {
            return Err(self.refused(inner, &real));
        }
        let from = SourcePath { linked: true, parts };
        let failed = |source| self.failed(&inner, source);
        let Some(last) = from.parts.last().cloned() else {
            // The allowed directory itself is above what is mounted.
            self.plan.left_out.links += 1;
            return Ok(());
        };
        let dir = self.trees.dir(&from).map_err(failed)?;
        match dir.entry_kind(&last).map_err(failed)? {
            Some(Node::Dir) if enters => {
                let tree = dir.enter(&last).map_err(failed)?;
                self.dir(&SourceDir { tree, from, inner }, hops)
            }
            Some(Node::File) => self.file(&dir, &last, from, inner),
            Some(Node::Dir) => Ok(()),
            Some(Node::Other) => {
                self.plan.left_out.special += u64::from(takes);
                Ok(())
            }
            // It was there a moment ago.
            Some(Node::Link) | None => Err(self.failed(&inner, io::ErrorKind::NotFound.into())),
        }
    }

    fn follow(&self, here: &SourceDir, name: &OsStr) -> Result<Vec<OsString>, LinkError> {
        let target = here.tree.link(name)?;
        let from = if here.from.linked {
            here.from.parts.clone()
        } else {
            self.own.iter().chain(&here.from.parts).cloned().collect()
        };
        let mut read = |path: &[OsString]| {
            let Some((name, above)) = path.split_last() else { return Ok(None) };
            let dir = self.trees.root.descend(above.iter().map(OsString::as_os_str))?;
            match dir.entry_kind(name)? {
                Some(Node::Link) => dir.link(name).map(Some),
                Some(_) => Ok(None),
                None => Err(io::ErrorKind::NotFound.into()),
            }
        };
        follow(self.mount.root.real(), &from, &target, &mut read)
    }

    fn refused(&self, path: String, real: &Path) -> ImportError {
        let problem = self.mount.policy.host_path_problem("mount", real);
        // A place that may be copied by another mount is outside of this one all the same.
        let problem = problem.unwrap_or_else(|| coracle_runtime::Problem {
            rule: "mount.root",
            setting: Some("workspace.allow_roots"),
            value: real.display().to_string(),
            message: "a link leads out of the allowed directory".into(),
        });
        ImportError::Refused { path, problem: Box::new(problem) }
    }

    fn too_large(&self, limit: u64, of: &'static str) -> ImportError {
        ImportError::TooLarge { name: self.mount.name.clone(), limit, of }
    }

    fn failed(&self, inner: &str, source: io::Error) -> ImportError {
        ImportError::Read { path: shown(&self.mount.name, inner), source }
    }
}

/// A file of the user.
pub(super) fn shown(name: &str, inner: &str) -> String {
    if inner.is_empty() { name.to_owned() } else { format!("{}/{inner}", name.trim_end_matches('/')) }
}

fn below(parts: &[OsString], name: &OsStr) -> Vec<OsString> {
    parts.iter().cloned().chain([name.to_owned()]).collect()
}

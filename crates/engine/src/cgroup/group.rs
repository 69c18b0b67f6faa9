//! The control groups of one container.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use coracle_host::cgroup::{self, CgroupDirs, CgroupUsage, CpuSamples};
use coracle_types::Result;
use serde::{Deserialize, Serialize};

use super::hierarchies::Version;
use super::{Parent, failed, pause};

/// Timeout for a removal: killed processes end within this time, unless a disk or the kernel hangs.
const REMOVAL: Duration = Duration::from_secs(10);

/// The directories of a container's groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerGroup {
    /// Of version 2.
    pub(super) unified: Option<PathBuf>,
    /// Of version 1, by controller; controllers that are mounted together share one.
    pub(super) by_controller: BTreeMap<String, PathBuf>,
}

/// A mount of control groups that shows a container its own groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupMount {
    /// Version 2.
    Unified,
    /// Version 1, with the controllers that are mounted together.
    Controllers(Vec<String>),
}

/// Controllers of version 1 in whose groups programs look for their limits.
const SHOWN: &[&str] = &["memory", "cpu", "cpuacct", "pids"];

/// How a new process, or its parent for it, enters the groups before its first instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupEntry {
    /// Files of version 1 to which the child writes `0`. Moving its own thread is cheap. Moving another process is not: the
    /// kernel waits until no process forks.
    pub(crate) tasks: Vec<PathBuf>,
    /// The directory of version 2; the child writes `0` to its `cgroup.procs`.
    pub(crate) unified: Option<PathBuf>,
}

impl ContainerGroup {
    pub(super) fn add(&mut self, parent: &Parent, dir: PathBuf) {
        match parent.version {
            Version::V2 => self.unified = Some(dir),
            Version::V1 => {
                self.by_controller.extend(parent.controllers.iter().map(|it| (it.clone(), dir.clone())));
            }
        }
    }

    /// The group mounts that a container gets. Version 2 without controllers would show no limits, and is left out.
    pub(crate) fn mounts(&self) -> Vec<GroupMount> {
        if self.by_controller.is_empty() {
            return self.unified.iter().map(|_| GroupMount::Unified).collect();
        }
        let mut together = BTreeMap::<&PathBuf, Vec<String>>::new();
        for (controller, dir) in &self.by_controller {
            together.entry(dir).or_default().push(controller.clone());
        }
        let shown = together.into_values().filter(|it| it.iter().any(|it| SHOWN.contains(&it.as_str())));
        shown.map(GroupMount::Controllers).collect()
    }

    pub(crate) fn entry(&self) -> GroupEntry {
        let dirs: BTreeSet<_> = self.by_controller.values().collect();
        GroupEntry { tasks: dirs.into_iter().map(|it| it.join("tasks")).collect(), unified: self.unified.clone() }
    }

    /// Whether a process is in these groups, so that their limits apply to it.
    pub(crate) fn holds(&self, pid: u32) -> Result<bool> {
        let groups: BTreeSet<_> = ["memory", "pids", "cpu"].into_iter().filter_map(|it| self.dir_of(it)).collect();
        for group in groups {
            let path = group.join("cgroup.procs");
            let text = fs::read_to_string(&path).map_err(|error| failed("read", &path, error))?;
            if !text.lines().any(|it| it.parse() == Ok(pid)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The path below the mount point of every hierarchy, for a program that creates or finds the groups itself. Only root's
    /// groups have the same path in all of them.
    pub(crate) fn path_in_hierarchies(&self) -> String {
        let mut parts = self.any_dir().into_iter().flat_map(Path::iter).rev().map(|it| it.to_string_lossy());
        let (id, parent) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        format!("/{parent}/{id}")
    }

    /// Returns the usage of all processes together. `pid` identifies the container in `samples` and must not change. `None`
    /// if no group counts it.
    pub(crate) async fn usage(&self, pid: u32, samples: &CpuSamples) -> Option<CgroupUsage> {
        let dirs = CgroupDirs {
            memory: self.dir_of("memory")?.to_owned(),
            pids: self.dir_of("pids")?.to_owned(),
            cpu: self.dir_of("cpuacct").or_else(|| self.dir_of("cpu"))?.to_owned(),
        };
        cgroup::usage(&dirs, pid, samples).await
    }

    /// How many of its processes the kernel has killed for lack of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        let file = if self.by_controller.contains_key("memory") { "memory.oom_control" } else { "memory.events" };
        let text = self.dir_of("memory").and_then(|it| fs::read_to_string(it.join(file)).ok()).unwrap_or_default();
        field(&text, "oom_kill").unwrap_or(0)
    }

    /// Whether there is no control group at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.any_dir().is_none()
    }

    /// Lists its processes, including those in groups below it.
    pub(crate) fn processes(&self) -> Result<Vec<u32>> {
        let Some(dir) = self.any_dir() else { return Ok(Vec::new()) };
        let mut found = BTreeSet::new();
        for group in with_descendants(dir) {
            let path = group.join("cgroup.procs");
            match fs::read_to_string(&path) {
                Ok(text) => found.extend(text.lines().filter_map(|it| it.parse::<u32>().ok())),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(failed("read", &path, error)),
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Removes its directories, including those below them, and waits for processes that are about to end. Kills nothing.
    pub(crate) fn remove(&self) -> Result<()> {
        let deadline = Instant::now() + REMOVAL;
        self.dirs()
            .into_iter()
            .try_for_each(|it| remove_tree(it, deadline).map_err(|error| failed("remove", it, error)))
    }

    pub(super) fn dirs(&self) -> BTreeSet<&PathBuf> {
        self.by_controller.values().chain(&self.unified).collect()
    }

    fn any_dir(&self) -> Option<&Path> {
        let of_version_1 = || self.by_controller.get("pids").or_else(|| self.by_controller.values().next());
        self.unified.as_ref().or_else(of_version_1).map(PathBuf::as_path)
    }

    fn dir_of(&self, controller: &str) -> Option<&Path> {
        self.by_controller.get(controller).or(self.unified.as_ref()).map(PathBuf::as_path)
    }
}

/// Removes a directory and those below it. Retries, since a group stays busy while its processes end.
fn remove_tree(dir: &Path, deadline: Instant) -> io::Result<()> {
    let mut time = Duration::from_micros(50);
    loop {
        let removed = with_descendants(dir).iter().rev().try_for_each(|it| match fs::remove_dir(it) {
            Err(error) if is_gone(&error) => Ok(()),
            removed => removed,
        });
        match removed {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                pause(time);
                time = (time * 2).min(Duration::from_millis(5));
            }
            removed => return removed,
        }
    }
}

/// Lists the directory and those below it, each after its parent.
fn with_descendants(dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![dir.to_owned()];
    let mut at = 0;
    while let Some(dir) = all.get(at).cloned() {
        all.extend(children(&dir).unwrap_or_default().into_iter().map(|it| dir.join(it)));
        at += 1;
    }
    all
}

/// The names of the groups in a directory.
pub(super) fn children(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let dirs = entries.filter_map(|it| it.ok().filter(|it| it.file_type().is_ok_and(|it| it.is_dir())));
    Ok(dirs.filter_map(|it| it.file_name().into_string().ok()).collect())
}

/// Whether an error means that the group was removed: files of it that are still open give `ENODEV`.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|it| it.split_once(' ').filter(|it| it.0 == name)?.1.trim().parse().ok())
}

//! Control groups of both versions: limits and usage of containers, and their processes.
//!
//! Each container has one directory below a parent of this engine in every hierarchy that is needed: for limits, devices,
//! freezing and killing, and in systemd's own (otherwise, stopping a service would end the containers that it started).
//!
//! | file | content |
//! |---|---|
//! | `hierarchies` | the mounted hierarchies and this process's place in them, pure |
//! | `limits` | limits as files and their content, pure |
//! | `parent` | the parent directory, in which this user may create groups |
//! | `group` | the group of one container: entering, usage, removal |
//! | `control` | freezing, thawing and killing |

mod control;
mod devices;
mod group;
mod hierarchies;
mod limits;
mod parent;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_runtime::Limits;
use coracle_types::{Error, Result};
use rustix::event::{Timespec, poll};

pub(crate) use group::{ContainerGroup, GroupMount};
use hierarchies::{Hierarchy, Version};
use limits::GroupFile;

/// Controllers of version 1 in whose hierarchies containers get a group, if they are mounted.
const VERSION_1: &[&str] = &["memory", "pids", "cpu", "cpuacct", "devices", "name=systemd"];

/// The control groups that this process may create.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    parents: Vec<Parent>,
}

/// The engine's directory in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parent {
    version: Version,
    dir: PathBuf,
    /// Controllers that its children have.
    controllers: Vec<String>,
    /// Whether the engine restricts the devices of its children, with version 1.
    restricts_devices: bool,
}

impl Cgroups {
    /// Finds the hierarchies in which this process may create groups, and creates a directory of that name in each. Finding
    /// none is no error: [`ignored_limits`](Self::ignored_limits) then names all limits. Engines with different data
    /// directories must use different names, or one would remove the groups of the other.
    pub(crate) fn detect(name: &str) -> io::Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let own = std::fs::read_to_string("/proc/self/cgroup")?;
        Ok(Self::among(&hierarchies::parse(&mounts, &own), name))
    }

    fn among(hierarchies: &[Hierarchy], name: &str) -> Self {
        let has_version_2 = hierarchies.iter().any(|it| serves_version_2(it) && parent::base(it).is_some());
        let serves = |it: &&Hierarchy| match it.version {
            Version::V2 => serves_version_2(it),
            Version::V1 => {
                let serves = |name: &str| VERSION_1.contains(&name) || (name == "freezer" && !has_version_2);
                it.controllers.iter().any(|it| serves(it))
            }
        };
        Self { parents: hierarchies.iter().filter(serves).filter_map(|it| parent::open(it, name)).collect() }
    }

    /// The version whose controllers enforce the limits; 1 if there are none.
    pub(crate) fn version(&self) -> u8 {
        if self.parents.iter().any(|it| it.version == Version::V2 && !it.controllers.is_empty()) { 2 } else { 1 }
    }

    /// Limits that cannot be enforced here, as in `EngineInfo::ignored_limits`.
    pub(crate) fn ignored_limits(&self) -> Vec<String> {
        let is_enforced = |controller: &str| self.parents.iter().any(|it| it.has(controller));
        let limits = [("memory", "memory"), ("cpus", "cpu"), ("pids", "pids")];
        limits.iter().filter(|it| !is_enforced(it.1)).map(|it| it.0.to_owned()).collect()
    }

    /// The limits of a container that are enforced here, without the [ignored](Self::ignored_limits) ones.
    pub(crate) fn enforced(&self, limits: Limits) -> Limits {
        let ignored = self.ignored_limits();
        let is_enforced = |name: &str| !ignored.iter().any(|it| it == name);
        Limits {
            memory: limits.memory.filter(|_| is_enforced("memory")),
            cpus: limits.cpus.filter(|_| is_enforced("cpus")),
            pids: limits.pids.filter(|_| is_enforced("pids")),
        }
    }

    /// Creates the groups of a container with its limits, before any process is in them. A limit that is among
    /// [`ignored_limits`](Self::ignored_limits) is not set; one that the kernel refuses is an error, and nothing is left.
    pub(crate) fn create(&self, id: &str, limits: &Limits) -> Result<ContainerGroup> {
        let mut group = ContainerGroup::default();
        for parent in &self.parents {
            let dir = parent.dir.join(id);
            let made = parent.create_group(&dir).and_then(|()| parent.write_limits(&dir, limits));
            group.add(parent, dir);
            if let Err(error) = made {
                let _ = group.remove();
                return Err(error);
            }
        }
        Ok(group)
    }

    /// The same below other parents, for a runtime that restricts devices itself. It allows more than the engine's parents
    /// would, such as creating nodes that cannot be opened.
    pub(crate) fn create_for_runtime(&self, id: &str, limits: &Limits) -> Result<ContainerGroup> {
        let parents: Vec<_> = self.parents.iter().map(Parent::for_runtimes).collect();
        Self { parents }.create(id, limits)
    }

    /// Kills and removes the groups of a container without a record, including those for a runtime.
    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        let for_runtimes: Vec<_> = self.parents.iter().map(Parent::for_runtimes).collect();
        for parents in [&self.parents, &for_runtimes] {
            let mut group = ContainerGroup::default();
            for parent in parents {
                let dir = parent.dir.join(id);
                if dir.is_dir() {
                    group.add(parent, dir);
                }
            }
            group.kill()?;
            group.remove()?;
        }
        Ok(())
    }
}

impl Parent {
    fn for_runtimes(&self) -> Self {
        let mut name = self.dir.file_name().unwrap_or_default().to_owned();
        name.push("-runtime");
        Self { dir: self.dir.with_file_name(name), restricts_devices: false, ..self.clone() }
    }

    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|it| it == controller)
    }

    /// Creates a group, and its parent if another process has removed that.
    fn create_group(&self, dir: &Path) -> Result<()> {
        let made = match std::fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                parent::prepare(self.version, &self.dir, self.restricts_devices);
                std::fs::create_dir(dir)
            }
            made => made,
        };
        match made {
            // An interrupted start left it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.map_err(|it| failed("create", dir, it)),
        }
    }

    fn write_limits(&self, dir: &Path, limits: &Limits) -> Result<()> {
        if self.restricts_devices && self.version == Version::V1 && self.has("devices") {
            devices::restrict(dir).map_err(|it| failed("restrict devices of", dir, it))?;
        }
        let files = limits::files(self.version, limits);
        files.iter().filter(|it| self.has(it.controller)).try_for_each(|it| it.write(dir))
    }
}

impl GroupFile {
    fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(self.name);
        match std::fs::write(&path, &self.content) {
            // Kernels without swap accounting have no such file.
            Err(error) if self.optional && error.kind() == io::ErrorKind::NotFound => Ok(()),
            // Opening a missing file with `O_CREAT` fails like this, since control groups refuse new files.
            Err(error) if self.optional && error.kind() == io::ErrorKind::PermissionDenied && !path.exists() => Ok(()),
            written => written.map_err(|it| failed("write", &path, it)),
        }
    }
}

/// Whether containers get a group in a hierarchy of version 2. Next to version 1, it often has no limits, and entering it
/// can cost 13 ms, so it is only used where systemd puts processes into it: otherwise, stopping a service would end its
/// containers.
fn serves_version_2(hierarchy: &Hierarchy) -> bool {
    hierarchy.version == Version::V2 && (hierarchy.own != hierarchy.mount || parent::keeps_limits(hierarchy))
}

/// Blocks the thread, as all functions here do.
fn pause(time: Duration) {
    if let Ok(time) = Timespec::try_from(time) {
        let _ = poll(&mut [], Some(&time));
    }
}

fn failed(verb: &str, path: &Path, source: io::Error) -> Error {
    Error::Host { what: format!("cannot {verb} `{}`", path.display()), source }
}

#[cfg(test)]
mod tests;

//! Control groups: which limits of containers the kernel enforces for this user.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::read;

/// The mount point of control groups.
const MOUNT: &str = "sys/fs/cgroup";

/// A controller, which enforces a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Memory.
    Memory,
    /// Processes and threads.
    Pids,
    /// Cores.
    Cpu,
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        })
    }
}

const ALL: [Controller; 3] = [Controller::Memory, Controller::Pids, Controller::Cpu];

/// The control groups that this user can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroups {
    /// 1 or 2; 0 if none are mounted. If both are mounted, the version that has the controllers.
    pub version: u8,
    /// Controllers that this user cannot use.
    pub missing: Vec<Controller>,
}

impl ControlGroups {
    pub(super) fn inspect(machine: &Path, root: bool) -> Self {
        let mount = machine.join(MOUNT);
        if mount.join("cgroup.controllers").exists() {
            return Self::of_version_2(&own_group(machine, &mount, root));
        }
        let usable = |it: &Controller| root && is_writable(&mount.join(it.to_string()));
        let missing: Vec<_> = ALL.into_iter().filter(|it| !usable(it)).collect();
        Self { version: u8::from(mount.join("memory").exists() || mount.join("pids").exists()), missing }
    }

    /// `group` is the parent of the containers' groups.
    fn of_version_2(group: &Path) -> Self {
        let offered = std::fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
        let delegated = is_writable(group) && is_writable(&group.join("cgroup.subtree_control"));
        let usable = |it: &Controller| delegated && offered.split_whitespace().any(|name| name == it.to_string());
        Self { version: 2, missing: ALL.into_iter().filter(|it| !usable(it)).collect() }
    }
}

/// The parent of the containers' groups: for root the top of the hierarchy; for other users the group delegated to
/// them, which is their own group or the nearest one above that they may write to.
fn own_group(machine: &Path, mount: &Path, root: bool) -> PathBuf {
    if root {
        return mount.to_owned();
    }
    let groups = read(machine, "proc/self/cgroup");
    let own = groups.lines().find_map(|it| it.strip_prefix("0::/")).unwrap_or_default();
    let own = mount.join(own);
    own.ancestors().find(|it| is_writable(it) || *it == mount).unwrap_or(mount).to_owned()
}

fn is_writable(path: &Path) -> bool {
    access(path, Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn version_2_has_the_delegated_controllers() {
        let dir = plant(&[
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids"),
            ("sys/fs/cgroup/cgroup.subtree_control", ""),
            ("sys/fs/cgroup/user/me/cgroup.controllers", "memory pids"),
            ("sys/fs/cgroup/user/me/cgroup.subtree_control", ""),
            ("proc/self/cgroup", "0::/user/me\n"),
        ]);
        assert_eq!(ControlGroups::inspect(dir.path(), true), ControlGroups { version: 2, missing: vec![] });
        let delegated = ControlGroups { version: 2, missing: vec![Controller::Cpu] };
        assert_eq!(ControlGroups::inspect(dir.path(), false), delegated);
    }

    #[test]
    fn version_1_is_for_root_only() {
        let dir = plant(&[("sys/fs/cgroup/memory/tasks", ""), ("sys/fs/cgroup/pids/tasks", "")]);
        let root = ControlGroups { version: 1, missing: vec![Controller::Cpu] };
        assert_eq!(ControlGroups::inspect(dir.path(), true), root);
        assert_eq!(ControlGroups::inspect(dir.path(), false).missing, ALL);
    }
}

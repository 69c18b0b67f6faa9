//! The parent directory of this engine's groups, as high in a hierarchy as this user may create groups.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::hierarchies::{Hierarchy, Version};
use super::{Parent, devices};

/// Controllers of version 2 that containers need.
const VERSION_2: &[&str] = &["memory", "pids", "cpu"];

/// Opens the directory of that name, and creates it if it is missing. `None` if this user may create no group.
///
/// Root gets the top of the hierarchy, as with other engines: a group below the caller's would end with the caller's
/// session or service. Other users get the top of the part that is delegated to them: the kernel moves their processes only
/// within it.
pub(super) fn open(hierarchy: &Hierarchy, name: &str) -> Option<Parent> {
    let dir = base(hierarchy)?.join(name);
    if !dir.is_dir() || hierarchy.version == Version::V2 {
        prepare(hierarchy.version, &dir, true);
    }
    let controllers = match hierarchy.version {
        Version::V1 => hierarchy.controllers.clone(),
        Version::V2 => words(&dir, "cgroup.subtree_control"),
    };
    dir.is_dir().then_some(Parent { version: hierarchy.version, dir, controllers, restricts_devices: true })
}

/// Finds the highest group, from the mount point down to that of this process, in which this user may create groups.
pub(super) fn base(hierarchy: &Hierarchy) -> Option<PathBuf> {
    let beneath = hierarchy.own.strip_prefix(&hierarchy.mount).ok()?;
    let mut dir = hierarchy.mount.clone();
    let mut groups = vec![dir.clone()];
    for part in beneath {
        dir.push(part);
        groups.push(dir.clone());
    }
    groups.into_iter().find(|it| may_write(it) && may_write(&it.join("cgroup.procs")))
}

/// Whether a hierarchy of version 2 has a controller that enforces a limit. Next to version 1, it often has only others, such
/// as `hugetlb`.
pub(super) fn keeps_limits(hierarchy: &Hierarchy) -> bool {
    words(&hierarchy.mount, "cgroup.controllers").iter().any(|it| ["cpu", "memory", "pids"].contains(&it.as_str()))
}

fn may_write(path: &Path) -> bool {
    access(path, Access::WRITE_OK).is_ok()
}

/// Creates the directory, and enables the controllers for its children as far as the kernel allows. The caller reads which
/// ones are enabled.
pub(super) fn prepare(version: Version, dir: &Path, restricts_devices: bool) {
    let _ = fs::create_dir(dir);
    match version {
        Version::V1 if restricts_devices && dir.join("devices.list").exists() => {
            let _ = devices::restrict(dir);
        }
        Version::V1 => {}
        Version::V2 => dir.parent().into_iter().chain([dir]).for_each(pass_on_controllers),
    }
}

/// Enables controllers for child groups, one at a time, since the kernel refuses a list as a whole. A group that contains
/// processes cannot enable any.
fn pass_on_controllers(group: &Path) {
    let (available, passed_on) = (words(group, "cgroup.controllers"), words(group, "cgroup.subtree_control"));
    let missing =
        VERSION_2.iter().map(|it| (*it).to_owned()).filter(|it| available.contains(it) && !passed_on.contains(it));
    for controller in missing {
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

fn words(group: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(group.join(file)).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

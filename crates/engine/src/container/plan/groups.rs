//! Mounts the container's own control groups read-only, so that programs can read their limits.

use std::ffi::CString;

use rustix::mount::MountAttrFlags;

use super::harmless;
use crate::cgroup::GroupMount;
use crate::sys::Step;

const DIR: &str = "/sys/fs/cgroup";

/// Mounts of the container's control groups. They follow the creation of a cgroup namespace, so the container's group
/// is the top. A mount that the kernel refuses is skipped.
pub(super) fn control_groups(mounts: &[GroupMount]) -> Vec<Step> {
    let read_only = harmless() | MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let file_system = |kind: &str, options: Vec<(CString, CString)>, target: &str| Step::FileSystem {
        kind: c(kind),
        options,
        attributes: read_only,
        target: c(target),
        optional: true,
    };
    if mounts.is_empty() {
        return Vec::new();
    }
    if mounts.contains(&GroupMount::Unified) {
        return vec![file_system("cgroup2", Vec::new(), DIR)];
    }
    let attributes = harmless() | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let options = vec![(c"mode".to_owned(), c"755".to_owned())];
    let mut steps = vec![Step::FileSystem { kind: c("tmpfs"), options, attributes, target: c(DIR), optional: false }];
    for mount in mounts {
        let GroupMount::Controllers(names) = mount else { continue };
        let together = names.join(",");
        let flags = names.iter().map(|it| (c(it), CString::default())).collect();
        steps.push(file_system("cgroup", flags, &format!("{DIR}/{together}")));
        if names.len() > 1 {
            let link = |it: &String| Step::Symlink { leads_to: c(&together), at: c(&format!("{}/{it}", &DIR[1..])) };
            steps.extend(names.iter().map(link));
        }
    }
    steps.push(Step::ReadOnly(c(DIR)));
    steps
}

/// Converts a name of a controller, which has no zero byte.
fn c(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(mounts: &[GroupMount]) -> Vec<String> {
        control_groups(mounts).iter().map(Step::to_string).collect()
    }

    #[test]
    fn a_container_sees_only_its_own_groups() {
        let names = |names: &[&str]| GroupMount::Controllers(names.iter().map(|it| (*it).to_owned()).collect());
        assert_eq!(shown(&[]), [""; 0]);
        assert_eq!(shown(&[GroupMount::Unified]), ["mount a file system at `/sys/fs/cgroup`"]);
        assert_eq!(
            shown(&[names(&["cpu", "cpuacct"]), names(&["memory"])]),
            [
                "mount a file system at `/sys/fs/cgroup`",
                "mount a file system at `/sys/fs/cgroup/cpu,cpuacct`",
                "make the link `sys/fs/cgroup/cpu`",
                "make the link `sys/fs/cgroup/cpuacct`",
                "mount a file system at `/sys/fs/cgroup/memory`",
                "make read-only `/sys/fs/cgroup`",
            ]
        );
    }
}

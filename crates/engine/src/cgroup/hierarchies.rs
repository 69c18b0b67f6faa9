//! Parses the mounted hierarchies of control groups, and this process's group in each.

use std::path::{Path, PathBuf};

/// Version of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    /// Controllers of version 1. Those of version 2 differ from group to group.
    pub(super) controllers: Vec<String>,
    /// The mount point.
    pub(super) mount: PathBuf,
    /// The group of this process.
    pub(super) own: PathBuf,
}

/// Parses `/proc/self/mountinfo` and `/proc/self/cgroup`. Returns each hierarchy with its first mount point.
pub(super) fn parse(mountinfo: &str, cgroup: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in mountinfo.lines().filter_map(Mount::parse) {
        let Some(own) = cgroup.lines().find_map(|it| mount.own_group(it)) else { continue };
        let is_known = found.iter().any(|it| it.version == mount.version && it.controllers == own.controllers);
        if !is_known {
            let mount = PathBuf::from(mount.point);
            found.push(Hierarchy {
                version: own.version,
                controllers: own.controllers,
                own: mount.join(own.path),
                mount,
            });
        }
    }
    found
}

#[derive(Debug)]
struct Mount<'a> {
    version: Version,
    root: &'a str,
    point: &'a str,
    options: Vec<&'a str>,
}

struct OwnGroup {
    version: Version,
    controllers: Vec<String>,
    /// Relative to the mount point.
    path: PathBuf,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup" => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        let options = kind.nth(1)?.split(',').collect();
        Some(Self { version, root, point, options })
    }

    /// The group in a line of `/proc/self/cgroup`, if it is one of this mount.
    fn own_group(&self, line: &str) -> Option<OwnGroup> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let controllers: Vec<_> = controllers.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        let is_this = match self.version {
            Version::V2 => controllers.is_empty(),
            Version::V1 => !controllers.is_empty() && controllers.iter().all(|it| self.options.contains(&it.as_str())),
        };
        // A group outside the mounted part has no path below the mount point, so the mount's root is used instead.
        let path = Path::new(path).strip_prefix(self.root).unwrap_or(Path::new("")).to_owned();
        is_this.then_some(OwnGroup { version: self.version, controllers, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(mountinfo: &str, cgroup: &str) -> String {
        let line = |it: Hierarchy| {
            let (mount, own) = (it.mount.display(), it.own.display());
            format!("{:?} {} {mount} {own}\n", it.version, it.controllers.join(","))
        };
        parse(mountinfo, cgroup).into_iter().map(line).collect()
    }

    #[test]
    fn version_1_and_2_are_distinguished_if_both_are_mounted() {
        let mounts = "\
            30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n\
            32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n\
            34 30 0:29 / /mnt rw - cgroup cgroup rw,cpu,cpuacct\n";
        let own = "3:cpu,cpuacct:/user\n2:memory:/\n1:name=systemd:/user.slice/a\n0::/user.slice\n";
        assert_eq!(
            shown(mounts, own),
            "V2  /sys/fs/cgroup/unified /sys/fs/cgroup/unified/user.slice\n\
             V1 name=systemd /sys/fs/cgroup/systemd /sys/fs/cgroup/systemd/user.slice/a\n\
             V1 cpu,cpuacct /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup/cpu,cpuacct/user\n"
        );
    }

    #[test]
    fn a_mounted_part_of_a_hierarchy_is_named_from_its_root() {
        let mounts = "29 23 0:25 /docker/c0ffee /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(shown(mounts, "0::/docker/c0ffee/inner\n"), "V2  /sys/fs/cgroup /sys/fs/cgroup/inner\n");
        assert_eq!(
            shown(mounts, "0::/elsewhere\n"),
            "V2  /sys/fs/cgroup /sys/fs/cgroup\n".replace("cgroup\n", "cgroup/\n")
        );
        assert_eq!(shown(mounts, "1:memory:/x\n"), "");
        assert_eq!(shown("", "0::/\n"), "");
    }
}

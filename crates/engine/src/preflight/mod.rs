//! Checks what this machine offers to the embedded engine. Only reads files: changes nothing and starts nothing.

mod control_groups;
mod data_directory;
mod id_ranges;
mod kernel;

use std::path::Path;

use coracle_host::find_program::find_program;

pub use self::control_groups::{ControlGroups, Controller};
pub use self::data_directory::{DataDirectory, FileSystemSupport};
pub use self::id_ranges::IdRanges;
pub use self::kernel::{Overlay, UserNamespaces};
use self::kernel::{has_seccomp, may_mount, overlay, user_namespaces};

/// Programs that connect a container's network without root, in order of preference.
const NETWORK_PROGRAMS: &[&str] = &["pasta", "slirp4netns"];

/// What this machine offers to the engine, for the user of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether the engine runs as root.
    pub root: bool,
    /// Whether the process may mount file systems. Root inside a container often may not.
    pub may_mount: bool,
    /// Whether this user may create user namespaces.
    pub user_namespaces: UserNamespaces,
    /// The overlay file system.
    pub overlay: Overlay,
    /// Whether the kernel has seccomp filters.
    pub seccomp: bool,
    /// The control groups, which limit containers.
    pub control_groups: ControlGroups,
    /// The subordinate ids of the user, for users inside a container.
    pub id_ranges: IdRanges,
    /// The program for networks without root, if one is installed.
    pub network_program: Option<&'static str>,
    /// The directory of images and containers.
    pub data: DataDirectory,
}

/// A reason why the engine cannot create containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// This process is root, but may not mount.
    NoMounts,
    /// This user may not create user namespaces.
    UserNamespaces,
    /// The kernel has no overlay file system, or one that is too old.
    Overlay,
    /// The data directory is on a file system that cannot hold the upper layer of an overlay.
    DataDirectory,
}

/// How containers are isolated from this machine, apart from the namespaces that every container has. All share its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// Root inside is an unprivileged user outside.
    pub user_namespace: bool,
    /// System calls are filtered.
    pub seccomp: bool,
}

impl Readiness {
    /// Inspects the machine. `data_dir` need not exist yet.
    #[must_use]
    pub fn inspect(data_dir: &Path) -> Self {
        Self::beneath(Path::new("/"), data_dir)
    }

    fn beneath(machine: &Path, data_dir: &Path) -> Self {
        let (uid, root) = (rustix::process::geteuid(), rustix::process::geteuid().is_root());
        Self {
            root,
            may_mount: may_mount(machine),
            user_namespaces: user_namespaces(machine, root),
            overlay: overlay(machine),
            seccomp: has_seccomp(machine),
            control_groups: ControlGroups::inspect(machine, root),
            id_ranges: IdRanges::inspect(machine, uid),
            network_program: NETWORK_PROGRAMS.iter().copied().find(|it| find_program(it).is_ok()),
            data: DataDirectory::inspect(data_dir),
        }
    }

    /// All reasons why the engine cannot create containers; empty if it can.
    #[must_use]
    pub fn obstacles(&self) -> Vec<Obstacle> {
        let (namespaces, overlay) = (self.user_namespaces.are_allowed(), self.overlay.is_usable());
        let found = [
            (self.root && !self.may_mount, Obstacle::NoMounts),
            (!self.root && !namespaces, Obstacle::UserNamespaces),
            (!overlay, Obstacle::Overlay),
            (!self.data.support.holds_upper(), Obstacle::DataDirectory),
        ];
        found.into_iter().filter(|it| it.0).map(|it| it.1).collect()
    }

    /// The isolation of each container.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        let mapped = !self.root || self.data.support == FileSystemSupport::Full;
        Isolation { user_namespace: self.user_namespaces.are_allowed() && mapped, seccomp: self.seccomp }
    }
}

/// The text of a file of the machine; empty if it cannot be read.
fn read(machine: &Path, path: &str) -> String {
    std::fs::read_to_string(machine.join(path)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readiness(root: bool) -> Readiness {
        Readiness {
            root,
            may_mount: root,
            user_namespaces: UserNamespaces::Allowed,
            overlay: Overlay::Available,
            seccomp: true,
            control_groups: ControlGroups { version: 2, missing: Vec::new() },
            id_ranges: IdRanges::Root,
            network_program: None,
            data: DataDirectory {
                dir: "/data".into(),
                file_system: "ext4".into(),
                support: FileSystemSupport::Full,
                free_bytes: None,
            },
        }
    }

    #[test]
    fn only_what_the_engine_requires_is_an_obstacle() {
        let limits = ControlGroups { version: 1, missing: vec![Controller::Memory] };
        for root in [true, false] {
            let poor = Readiness {
                seccomp: false,
                id_ranges: IdRanges::NoHelper("newuidmap"),
                control_groups: limits.clone(),
                ..readiness(root)
            };
            assert_eq!(poor.obstacles(), []);
            let bare = Readiness {
                may_mount: false,
                user_namespaces: UserNamespaces::ForbiddenByLimit,
                overlay: Overlay::Missing,
                ..readiness(root)
            };
            let first = if root { Obstacle::NoMounts } else { Obstacle::UserNamespaces };
            assert_eq!(bare.obstacles(), [first, Obstacle::Overlay]);
        }
    }

    #[test]
    fn root_inside_is_root_outside_only_if_ids_cannot_be_mapped() {
        let unmapped = |root| {
            let mut it = readiness(root);
            it.data.support = FileSystemSupport::WithoutIdMapping;
            it.isolation().user_namespace
        };
        assert!(readiness(true).isolation().user_namespace);
        assert!(!unmapped(true) && unmapped(false));
    }

    #[test]
    fn an_empty_machine_is_read_without_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let found = Readiness::beneath(dir.path(), dir.path());
        assert_eq!((found.overlay, found.seccomp, found.control_groups.version), (Overlay::Missing, false, 0));
        assert!(found.obstacles().contains(&Obstacle::Overlay));
    }
}

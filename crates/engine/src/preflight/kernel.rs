//! What the kernel supports: user namespaces, overlays, seccomp.

use std::path::Path;

use super::read;

/// Whether this user may create user namespaces, and which setting forbids it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserNamespaces {
    /// The user may create them.
    Allowed,
    /// The kernel was built without them.
    Missing,
    /// `user.max_user_namespaces` is 0.
    ForbiddenByLimit,
    /// `kernel.unprivileged_userns_clone`, which Debian's kernels have, is 0.
    ForbiddenBySysctl,
    /// `kernel.apparmor_restrict_unprivileged_userns` is 1, on Ubuntu from 23.10 on.
    ForbiddenByAppArmor,
}

impl UserNamespaces {
    /// Whether this user may create one.
    #[must_use]
    pub fn are_allowed(self) -> bool {
        self == Self::Allowed
    }
}

/// The overlay file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The kernel has it.
    Available,
    /// A module, which the first mount loads.
    Module,
    /// The kernel has it, but is too old: it takes all layers only as one string.
    TooOld,
    /// The kernel does not have it.
    Missing,
}

impl Overlay {
    /// Whether the engine can use it.
    #[must_use]
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Available | Self::Module)
    }
}

/// The first Linux that accepts layers one by one (`lowerdir+`), according to the kernel's documentation of overlayfs.
const LAYERS_ONE_BY_ONE: (u32, u32) = (6, 8);

pub(super) fn user_namespaces(machine: &Path, root: bool) -> UserNamespaces {
    if !machine.join("proc/self/ns/user").exists() {
        return UserNamespaces::Missing;
    }
    let is = |path: &str, value: &str| read(machine, path).trim() == value;
    if is("proc/sys/user/max_user_namespaces", "0") {
        return UserNamespaces::ForbiddenByLimit;
    }
    if !root && is("proc/sys/kernel/unprivileged_userns_clone", "0") {
        return UserNamespaces::ForbiddenBySysctl;
    }
    if !root && is("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        return UserNamespaces::ForbiddenByAppArmor;
    }
    UserNamespaces::Allowed
}

pub(super) fn overlay(machine: &Path) -> Overlay {
    let release = read(machine, "proc/sys/kernel/osrelease");
    let modules = machine.join("lib/modules").join(release.trim()).join("kernel/fs/overlayfs");
    let found = if read(machine, "proc/filesystems").split_whitespace().any(|it| it == "overlay") {
        Overlay::Available
    } else if !release.trim().is_empty() && modules.is_dir() {
        Overlay::Module
    } else {
        return Overlay::Missing;
    };
    // A release without a version number is assumed to be new enough.
    if version(&release).is_some_and(|it| it < LAYERS_ONE_BY_ONE) { Overlay::TooOld } else { found }
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']).map_while(|it| it.trim().parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

pub(super) fn has_seccomp(machine: &Path) -> bool {
    machine.join("proc/sys/kernel/seccomp/actions_avail").exists()
}

/// `CAP_SYS_ADMIN` is bit 21.
pub(super) fn may_mount(machine: &Path) -> bool {
    let status = read(machine, "proc/self/status");
    let effective = status.lines().find_map(|it| it.strip_prefix("CapEff:"));
    effective.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).is_some_and(|it| it & (1 << 21) != 0)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn machine(files: &[(&str, &str)]) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    const NAMESPACE: (&str, &str) = ("proc/self/ns/user", "");

    #[test]
    fn the_setting_that_forbids_user_namespaces_is_found() {
        let limit = ("proc/sys/user/max_user_namespaces", "0\n");
        let clone = ("proc/sys/kernel/unprivileged_userns_clone", "0\n");
        let apparmor = ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
        for (files, user, root) in [
            (&[][..], UserNamespaces::Missing, UserNamespaces::Missing),
            (&[NAMESPACE], UserNamespaces::Allowed, UserNamespaces::Allowed),
            (&[NAMESPACE, limit], UserNamespaces::ForbiddenByLimit, UserNamespaces::ForbiddenByLimit),
            (&[NAMESPACE, clone], UserNamespaces::ForbiddenBySysctl, UserNamespaces::Allowed),
            (&[NAMESPACE, apparmor], UserNamespaces::ForbiddenByAppArmor, UserNamespaces::Allowed),
        ] {
            let dir = machine(files);
            assert_eq!(user_namespaces(dir.path(), false), user, "{files:?}");
            assert_eq!(user_namespaces(dir.path(), true), root, "{files:?}");
        }
    }

    #[test]
    fn an_overlay_is_part_of_the_kernel_or_a_module() {
        let release = ("proc/sys/kernel/osrelease", "6.12.0-9\n");
        let found = |files: &[(&str, &str)]| overlay(machine(files).path());
        assert_eq!(found(&[("proc/filesystems", "nodev\ttmpfs\nnodev\toverlay\n")]), Overlay::Available);
        assert_eq!(found(&[release, ("lib/modules/6.12.0-9/kernel/fs/overlayfs/overlay.ko", "")]), Overlay::Module);
        assert_eq!(found(&[release, ("lib/modules/5.0/kernel/fs/overlayfs/overlay.ko", "")]), Overlay::Missing);
        for (release, expected) in
            [("6.7.12-x\n", Overlay::TooOld), ("6.8.0\n", Overlay::Available), ("odd\n", Overlay::Available)]
        {
            let files = [("proc/sys/kernel/osrelease", release), ("proc/filesystems", "nodev\toverlay\n")];
            assert_eq!(found(&files), expected, "{release}");
        }
    }

    #[test]
    fn root_inside_a_container_may_not_mount() {
        let may =
            |bits: &str| may_mount(machine(&[("proc/self/status", &format!("Name:\tx\nCapEff:\t{bits}\n"))]).path());
        assert!(may("000001ffffffffff") && !may("00000000a80425fb") && !may("nonsense"));
    }
}

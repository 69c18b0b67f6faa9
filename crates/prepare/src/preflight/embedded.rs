//! Checks of the embedded engine: what the host supports, what that means, and how to fix what is missing.

use coracle_context::engines::obstacles::{NO_OVERLAY, OLD_OVERLAY, namespaces_detail, no_upper};
use coracle_context::host_system::System;
use coracle_engine::OciRuntime;
use coracle_engine::preflight::{DataDirectory, FileSystemSupport, IdRanges, Overlay, Readiness, UserNamespaces};
use coracle_host::find_program::find_program;
use coracle_types::IsolationKind;

use super::checks::{Check, Status};

pub(super) fn checks(found: &Readiness, system: &System) -> Vec<Check> {
    let mounts = (found.root && !found.may_mount).then(|| {
        Check::new("mounts", Status::Fail, "this root may not mount file systems")
            .with_guidance("give this container or service the capability CAP_SYS_ADMIN, or run coracle outside of it")
    });
    let others = [
        user_namespaces(found),
        overlay(found.overlay),
        seccomp(found.seccomp),
        control_groups(found),
        subordinate_ids(found.id_ranges, system),
        network_program(found.network_program, system),
        data_directory(&found.data, found.root),
    ];
    mounts.into_iter().chain(others).collect()
}

/// Checks the configured OCI runtime.
pub(super) fn oci_runtime(runtime: OciRuntime, found: &Readiness, system: &System) -> Check {
    let (name, program) = ("oci_runtime", runtime.program());
    if !found.root {
        return Check::new(name, Status::Fail, format!("`{program}` needs root here"))
            .with_guidance("run coracle as root, or remove `engine_runtime` from the configuration");
    }
    match find_program(program) {
        Ok(path) => Check::new(name, Status::Pass, format!("`{}`", path.display())),
        Err(_) => Check::new(name, Status::Fail, format!("`{program}` was not found"))
            .with_guidance(Packages { apt: program, dnf: program, pacman: program }.installation(system)),
    }
}

/// Checks how containers are isolated from this host.
pub(super) fn isolation(found: &Readiness, runtime: Option<OciRuntime>) -> Check {
    if let Some(runtime) = runtime.filter(|it| it.isolation() == IsolationKind::Gvisor) {
        let detail = format!("gvisor: `{runtime}` stands between containers and this machine's kernel");
        return Check::new("isolation", Status::Info, detail);
    }
    let it = found.isolation();
    let users = match it.user_namespace {
        true => "root inside is an unprivileged user outside",
        false => "root inside is root outside, with few capabilities",
    };
    let calls = if it.seccomp { "system calls are filtered" } else { "system calls are not filtered" };
    let status = if it.user_namespace && it.seccomp { Status::Info } else { Status::Warn };
    Check::new("isolation", status, format!("namespaces: containers share this machine's kernel; {users}; {calls}"))
}

fn user_namespaces(found: &Readiness) -> Check {
    let name = "user_namespaces";
    let setting = match found.user_namespaces {
        UserNamespaces::Allowed => return Check::new(name, Status::Pass, "this user may create them"),
        UserNamespaces::Missing => None,
        UserNamespaces::ForbiddenByLimit => Some("user.max_user_namespaces=28633"),
        UserNamespaces::ForbiddenBySysctl => Some("kernel.unprivileged_userns_clone=1"),
        UserNamespaces::ForbiddenByAppArmor => Some("kernel.apparmor_restrict_unprivileged_userns=0"),
    };
    let guidance = setting.map_or_else(
        || "use a kernel with CONFIG_USER_NS, or Docker or Podman of root".to_owned(),
        |it| format!("  sudo sysctl -w {it}\nand to keep it after a reboot\n  echo {it} | sudo tee /etc/sysctl.d/90-coracle.conf"),
    );
    let status = if found.root { Status::Warn } else { Status::Fail };
    Check::new(name, status, namespaces_detail(found.user_namespaces)).with_guidance(guidance)
}

fn overlay(found: Overlay) -> Check {
    match found {
        Overlay::Available => Check::new("overlay", Status::Pass, "the kernel has it"),
        Overlay::Module => Check::new("overlay", Status::Pass, "a module of the kernel, loaded by the first mount"),
        Overlay::TooOld => Check::new("overlay", Status::Fail, OLD_OVERLAY)
            .with_guidance("use a kernel from 6.8 on, or Podman or Docker"),
        Overlay::Missing => Check::new("overlay", Status::Fail, NO_OVERLAY)
            .with_guidance("  sudo modprobe overlay\nor use a kernel with CONFIG_OVERLAY_FS"),
    }
}

fn seccomp(found: bool) -> Check {
    match found {
        true => Check::new("seccomp", Status::Pass, "system calls of containers are filtered"),
        false => Check::new("seccomp", Status::Warn, "the kernel cannot filter system calls of containers")
            .with_guidance("use a kernel with CONFIG_SECCOMP_FILTER"),
    }
}

fn control_groups(found: &Readiness) -> Check {
    let groups = &found.control_groups;
    let name = "control_groups";
    if groups.missing.is_empty() {
        return Check::new(name, Status::Pass, format!("version {}, with memory, pids and cpu", groups.version));
    }
    let missing = groups.missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let detail = match groups.version {
        0 => format!("no control groups are mounted: limits of {missing} are not enforced"),
        version => format!("version {version} without {missing} for this user: these limits are not enforced"),
    };
    let guidance = match (groups.version, found.root) {
        (2, false) => {
            "let systemd delegate the controllers, then log in again:\n  \
             sudo mkdir -p /etc/systemd/system/user@.service.d\n  \
             printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | \
             sudo tee /etc/systemd/system/user@.service.d/delegate.conf\n  sudo systemctl daemon-reload"
        }
        (1, false) => {
            "only root sets limits of version 1: boot with the kernel option `systemd.unified_cgroup_hierarchy=1`"
        }
        _ => "mount control groups writable in `/sys/fs/cgroup`",
    };
    Check::new(name, Status::Warn, detail).with_guidance(guidance)
}

fn subordinate_ids(found: IdRanges, system: &System) -> Check {
    let name = "subordinate_ids";
    match found {
        IdRanges::Root => Check::new(name, Status::Info, "root needs none"),
        IdRanges::Subordinate(ids) => Check::new(name, Status::Pass, format!("{ids} ids for users inside")),
        IdRanges::NoRange => {
            let detail = format!("`/etc/subuid` or `/etc/subgid` has no line for this user: {ONE_USER}");
            Check::new(name, Status::Warn, detail).with_guidance(NEW_RANGE)
        }
        IdRanges::TooFew(ids) => {
            let detail = format!("the ranges of this user have {ids} ids at most, and images need 65536: {ONE_USER}");
            Check::new(name, Status::Warn, detail).with_guidance(NEW_RANGE)
        }
        IdRanges::NoHelper(program) => {
            let detail = format!("no `{program}` was found: {ONE_USER}");
            let packages = Packages { apt: "uidmap", dnf: "shadow-utils", pacman: "shadow" };
            Check::new(name, Status::Warn, detail).with_guidance(packages.installation(system))
        }
    }
}

/// The consequence of missing subordinate ids.
const ONE_USER: &str = "root, who is you outside, is the only user inside: no `user`, sandbox, session or `strict`; \
                        all files of images are root's";

const NEW_RANGE: &str = "  sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 \"$USER\"\n\
                         with ids that no other line of the two files has";

fn network_program(found: Option<&str>, system: &System) -> Check {
    let name = "network_program";
    if let Some(program) = found {
        return Check::new(name, Status::Pass, format!("`{program}` is installed"));
    }
    let packages = Packages { apt: "passt", dnf: "passt", pacman: "passt" };
    Check::new(name, Status::Warn, "neither `pasta` nor `slirp4netns` was found, which networks without root need")
        .with_guidance(packages.installation(system))
}

fn data_directory(data: &DataDirectory, root: bool) -> Check {
    let detail = format!("`{}` on {}", data.dir.display(), data.file_system);
    let name = "data_directory";
    match data.support {
        FileSystemSupport::WithoutIdMapping if root => {
            Check::new(name, Status::Warn, format!("{detail}, where ids cannot be mapped"))
                .with_guidance("name a directory on ext4, xfs or btrfs with `engine_data`")
        }
        FileSystemSupport::Full | FileSystemSupport::WithoutIdMapping => Check::new(name, Status::Pass, detail),
        FileSystemSupport::Unknown => {
            Check::new(name, Status::Info, format!("{detail}, a file system that coracle does not know"))
        }
        FileSystemSupport::None => Check::new(name, Status::Fail, no_upper(data))
            .with_guidance("name a directory on ext4, xfs, btrfs or tmpfs with `engine_data`"),
    }
}

/// The names of one package in each distribution.
struct Packages {
    apt: &'static str,
    dnf: &'static str,
    pacman: &'static str,
}

impl Packages {
    fn installation(&self, system: &System) -> String {
        match system {
            System::Debian { .. } | System::Wsl { apt: true } => {
                format!("  sudo apt-get install -y --no-install-recommends {}", self.apt)
            }
            System::Fedora => format!("  sudo dnf install -y {}", self.dnf),
            System::Arch => format!("  sudo pacman -S --needed {}", self.pacman),
            _ => format!("install the package `{}`", self.apt),
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_engine::preflight::{ControlGroups, Controller};
    use insta::assert_snapshot;

    use super::*;

    fn readiness(root: bool) -> Readiness {
        Readiness {
            root,
            may_mount: root,
            user_namespaces: UserNamespaces::Allowed,
            overlay: Overlay::Available,
            seccomp: true,
            control_groups: ControlGroups { version: 2, missing: Vec::new() },
            id_ranges: if root { IdRanges::Root } else { IdRanges::Subordinate(65_536) },
            network_program: Some("pasta"),
            data: DataDirectory {
                dir: "/data".into(),
                file_system: "ext4".into(),
                support: FileSystemSupport::Full,
                free_bytes: None,
            },
        }
    }

    fn rendered(found: &Readiness) -> String {
        let all = checks(found, &System::Debian { supported: true }).into_iter().chain([isolation(found, None)]);
        let line = |it: Check| match it.guidance {
            None => format!("{} {:?}: {}", it.name, it.status, it.detail),
            Some(guidance) => format!("{} {:?}: {}\n{guidance}", it.name, it.status, it.detail),
        };
        all.map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_complete_host_needs_no_fix() {
        for root in [true, false] {
            let found = readiness(root);
            assert!(checks(&found, &System::Other).iter().all(|it| it.guidance.is_none()), "{}", rendered(&found));
        }
        assert_snapshot!(rendered(&readiness(false)), @r"
        user_namespaces Pass: this user may create them
        overlay Pass: the kernel has it
        seccomp Pass: system calls of containers are filtered
        control_groups Pass: version 2, with memory, pids and cpu
        subordinate_ids Pass: 65536 ids for users inside
        network_program Pass: `pasta` is installed
        data_directory Pass: `/data` on ext4
        isolation Info: namespaces: containers share this machine's kernel; root inside is an unprivileged user outside; system calls are filtered
        ");
    }

    #[test]
    fn every_fault_has_its_command() {
        let mut found = Readiness {
            user_namespaces: UserNamespaces::ForbiddenBySysctl,
            overlay: Overlay::Missing,
            seccomp: false,
            control_groups: ControlGroups { version: 2, missing: vec![Controller::Cpu] },
            id_ranges: IdRanges::NoHelper("newuidmap"),
            network_program: None,
            ..readiness(false)
        };
        found.data.support = FileSystemSupport::None;
        found.data.file_system = "overlay".into();
        assert_snapshot!(rendered(&found), @r"
        user_namespaces Fail: `kernel.unprivileged_userns_clone` allows user namespaces to root alone
          sudo sysctl -w kernel.unprivileged_userns_clone=1
        and to keep it after a reboot
          echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/90-coracle.conf
        overlay Fail: the kernel has no overlay file system
          sudo modprobe overlay
        or use a kernel with CONFIG_OVERLAY_FS
        seccomp Warn: the kernel cannot filter system calls of containers
        use a kernel with CONFIG_SECCOMP_FILTER
        control_groups Warn: version 2 without cpu for this user: these limits are not enforced
        let systemd delegate the controllers, then log in again:
          sudo mkdir -p /etc/systemd/system/user@.service.d
          printf '[Service]\nDelegate=cpu cpuset io memory pids\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf
          sudo systemctl daemon-reload
        subordinate_ids Warn: no `newuidmap` was found: root, who is you outside, is the only user inside: no `user`, sandbox, session or `strict`; all files of images are root's
          sudo apt-get install -y --no-install-recommends uidmap
        network_program Warn: neither `pasta` nor `slirp4netns` was found, which networks without root need
          sudo apt-get install -y --no-install-recommends passt
        data_directory Fail: `/data` is on overlay, which cannot hold files of containers
        name a directory on ext4, xfs, btrfs or tmpfs with `engine_data`
        isolation Warn: namespaces: containers share this machine's kernel; root inside is root outside, with few capabilities; system calls are not filtered
        ");
        let failed = checks(&found, &System::Other).iter().filter(|it| it.status == Status::Fail).count();
        assert_eq!(failed, found.obstacles().len());
    }

    #[test]
    fn an_oci_runtime_isolates_and_needs_root() {
        let checked = |root| oci_runtime(OciRuntime::Runsc, &readiness(root), &System::Other).status;
        assert_eq!(checked(false), Status::Fail);
        let wall = |runtime| isolation(&readiness(true), runtime).detail;
        assert!(wall(Some(OciRuntime::Runsc)).starts_with("gvisor: "));
        assert_eq!(wall(Some(OciRuntime::Crun)), wall(None));
    }

    #[test]
    fn root_without_mounts_fails_and_without_user_namespaces_is_warned() {
        let found = Readiness {
            may_mount: false,
            user_namespaces: UserNamespaces::Missing,
            control_groups: ControlGroups { version: 1, missing: vec![Controller::Memory] },
            ..readiness(true)
        };
        let statuses: Vec<_> = checks(&found, &System::Other).iter().map(|it| (it.name, it.status)).collect();
        assert_eq!(statuses[..2], [("mounts", Status::Fail), ("user_namespaces", Status::Warn)]);
        assert_eq!(isolation(&found, None).status, Status::Warn);
    }
}

//! File systems of the kernel, devices, and what of them is covered.

use std::ffi::CString;

use rustix::mount::MountAttrFlags;

use super::harmless;
use crate::isolation;
use crate::sys::{BindSource, Step};

fn file_system(kind: &str, target: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Step {
    let options = options.iter().map(|(key, value)| (c(key), c(value))).collect();
    Step::FileSystem { kind: c(kind), options, attributes, target: c(target) }
}

/// `text` is one of this module's or the tables' constants.
fn c(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

pub(super) fn kernel_file_systems(new_network: bool) -> Vec<Step> {
    let data = harmless() | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let programs = MountAttrFlags::MOUNT_ATTR_NOSUID;
    let mut steps = vec![
        file_system("proc", "proc", &[], data),
        file_system("tmpfs", "dev", &[("mode", "755"), ("size", "64m")], programs | MountAttrFlags::MOUNT_ATTR_NOEXEC),
        Step::Directory { at: c("dev/pts"), mode: 0o755 },
        file_system(
            "devpts",
            "dev/pts",
            &[("ptmxmode", "0666"), ("mode", "0620"), ("gid", "5")],
            programs | MountAttrFlags::MOUNT_ATTR_NOEXEC,
        ),
        Step::Directory { at: c("dev/mqueue"), mode: 0o755 },
        file_system("mqueue", "dev/mqueue", &[], data),
        Step::Directory { at: c("dev/shm"), mode: 0o755 },
        file_system("tmpfs", "dev/shm", &[("mode", "1777"), ("size", "256m")], data),
    ];
    let read_only = data | MountAttrFlags::MOUNT_ATTR_RDONLY;
    steps.push(if new_network {
        file_system("sysfs", "sys", &[], read_only)
    } else {
        // A new instance would show the devices of a network namespace that is not this one's.
        Step::Bind {
            source: BindSource::Path { path: c("/sys"), recursive: true },
            attributes: read_only,
            target: c("sys"),
            directory: true,
        }
    });
    steps
}

/// Nodes are bound and not made: no user namespace may make one.
pub(super) fn devices() -> Vec<Step> {
    let node = |name: &&str| Step::Bind {
        source: BindSource::Path { path: c(&format!("/dev/{name}")), recursive: false },
        attributes: MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC,
        target: c(&format!("dev/{name}")),
        directory: false,
    };
    let link = |(at, leads_to): &(&str, &str)| Step::Symlink { leads_to: c(leads_to), at: c(at) };
    isolation::DEVICES.iter().map(node).chain(isolation::DEVICE_LINKS.iter().map(link)).collect()
}

pub(super) fn guards() -> Vec<Step> {
    let masks = isolation::MASKED_PATHS.iter().map(|it| Step::Mask(c(it)));
    masks.chain(isolation::READ_ONLY_PATHS.iter().map(|it| Step::ReadOnly(c(it)))).collect()
}

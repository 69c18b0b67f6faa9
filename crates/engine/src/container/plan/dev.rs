//! Mounts of kernel file systems and devices, and the masks over parts of them.

use std::ffi::CString;

use rustix::mount::MountAttrFlags;

use super::harmless;
use crate::isolation::kernel::{KernelMount, MOUNTS, network_settings};
use crate::isolation::paths::{
    DEVICES, DeviceNode, LINKS, Link, MASKED, MASKED_FROM_ROOT, MASKED_IN_HOST_SYS, MASKED_OF_PROCESSOR, PROCESSORS,
    READ_ONLY,
};
use crate::sys::{BindSource, Step};

/// The size of the container's shared memory, the same as Coracle requests from other engines.
const SHM: (&str, &str) = ("/dev/shm", "size=256m");

/// Converts a constant of the tables, which has no zero byte.
fn c(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Mounts of kernel file systems. `last_group` is the highest group id of the container.
pub(super) fn kernel_file_systems(new_network: bool, last_group: u32) -> Vec<Step> {
    let step = |it: &KernelMount| match it.target {
        "/sys" if !new_network => host_sysfs(it),
        _ => file_system(it, last_group),
    };
    MOUNTS.iter().map(step).collect()
}

fn file_system(mount: &KernelMount, last_group: u32) -> Step {
    // A container with a single group does not have the group of terminals.
    let has_group =
        |it: &str| it.strip_prefix("gid=").is_none_or(|it| it.parse().is_ok_and(|it: u32| it <= last_group));
    let options = mount.options.iter().filter(|it| has_group(it));
    let options = options.map(|it| if mount.target == SHM.0 && it.starts_with("size=") { SHM.1 } else { it });
    Step::FileSystem {
        kind: c(mount.kind),
        // The only option without a value is `newinstance`, which kernels since 4.7 always set.
        options: options.filter_map(|it| it.split_once('=')).map(|(key, value)| (c(key), c(value))).collect(),
        attributes: mount.attributes,
        target: c(mount.target),
        optional: mount.optional,
    }
}

/// Binds the host's `/sys`: a new instance would show another network namespace.
fn host_sysfs(mount: &KernelMount) -> Step {
    let source = BindSource::Path { path: c("/sys"), recursive: true };
    Step::Bind { source, attributes: mount.attributes | harmless(), target: c(mount.target), directory: true }
}

/// Binds device nodes of the host: a process in a user namespace cannot create nodes.
pub(super) fn devices() -> Vec<Step> {
    let node = |DeviceNode { name, .. }: &DeviceNode| Step::Bind {
        source: BindSource::Path { path: c(&format!("/dev/{name}")), recursive: false },
        attributes: MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC,
        target: c(&format!("/dev/{name}")),
        directory: false,
    };
    let link = |Link { name, target }: &Link| Step::Symlink { leads_to: c(target), at: c(&format!("dev/{name}")) };
    DEVICES.iter().map(node).chain(LINKS.iter().map(link)).collect()
}

/// Settings of the container's own network namespace, written before `/proc/sys` becomes read-only.
pub(super) fn settings(last_group: u32) -> Vec<Step> {
    let setting =
        |(file, value): (&str, String)| Step::Setting { path: c(&format!("proc/sys/{file}")), value: c(&value) };
    network_settings(last_group).into_iter().map(setting).collect()
}

/// What a container shares with the host, so that more paths have to be masked.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedWithHost {
    /// Whether root inside is root outside.
    pub(super) users: bool,
    pub(super) network: bool,
}

pub(super) fn guards(shared: SharedWithHost) -> Vec<Step> {
    let from_root = if shared.users { MASKED_FROM_ROOT } else { &[] };
    let in_sys = if shared.network { MASKED_IN_HOST_SYS } else { &[] };
    let masks = MASKED.iter().chain(from_root).chain(in_sys).map(|it| Step::Mask(c(it)));
    let heat = processors_with_heat().into_iter().map(|it| Step::Mask(c(&it)));
    masks.chain(heat).chain(READ_ONLY.iter().map(|it| Step::ReadOnly(c(it)))).collect()
}

fn processors_with_heat() -> Vec<String> {
    let entries = std::fs::read_dir(PROCESSORS).into_iter().flatten().flatten();
    let heat = entries.map(|it| it.path().join(MASKED_OF_PROCESSOR)).filter(|it| it.exists());
    heat.filter_map(|it| it.to_str().map(ToOwned::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_paths_are_masked_in_what_is_shared_with_the_host() {
        let masked = |users, network| {
            let steps = guards(SharedWithHost { users, network });
            let paths = steps.iter().filter_map(|it| if let Step::Mask(path) = it { path.to_str().ok() } else { None });
            let all: Vec<_> = paths.collect();
            ["/proc/kcore", "/proc/slabinfo", "/sys/kernel/debug"].map(|it| all.contains(&it))
        };
        assert_eq!(masked(false, false), [true, false, false]);
        assert_eq!(masked(true, false), [true, true, false]);
        assert_eq!(masked(false, true), [true, false, true]);
    }
}

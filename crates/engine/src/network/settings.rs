//! Settings of the kernel for IPv4, of each device of this thread's network namespace.

use std::io;
use std::path::{Path, PathBuf};

/// Stands for all devices, in the place of one.
const ALL: &str = "all";

const SETTINGS: &str = "/proc/sys/net/ipv4";

fn directory() -> PathBuf {
    Path::new(SETTINGS).join("conf")
}

/// The names of all devices.
pub(super) fn devices() -> io::Result<Vec<String>> {
    let names = match std::fs::read_dir(directory()) {
        // A kernel without IPv4.
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?.map(|it| it.map(|it| it.file_name())).collect::<io::Result<Vec<_>>>()?,
    };
    let names = names.into_iter().filter_map(|it| it.into_string().ok());
    Ok(names.filter(|it| it != ALL && it != "default").collect())
}

/// Whether other devices are joined to this one.
pub(super) fn is_bridge(device: &str) -> bool {
    Path::new("/sys/class/net").join(device).join("bridge").exists()
}

/// A setting of the host as a whole.
pub(super) fn read_global(name: &str) -> io::Result<String> {
    Ok(std::fs::read_to_string(Path::new(SETTINGS).join(name))?.trim_end().to_owned())
}

/// A setting of a device, unless that is gone.
pub(super) fn read(device: &str, name: &str) -> io::Result<Option<String>> {
    match std::fs::read_to_string(directory().join(device).join(name)) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        text => Ok(Some(text?.trim_end().to_owned())),
    }
}

/// Switches IPv6 off for a device. A kernel without IPv6 has nothing to switch.
pub(super) fn disable_ipv6(device: &str) -> io::Result<()> {
    let file = Path::new("/proc/sys/net/ipv6/conf").join(device).join("disable_ipv6");
    match std::fs::write(file, "1") {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Changes a setting of a device, unless it has that value: where `/proc` is read-only, the right values may be there. A
/// device that is gone needs none.
pub(super) fn write(device: &str, name: &str, value: &str) -> io::Result<()> {
    if read(device, name)?.is_none_or(|it| it == value) {
        return Ok(());
    }
    match std::fs::write(directory().join(device).join(name), value) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

//! IPv4 settings of the kernel, for each device of this thread's network namespace.

use std::io;
use std::path::{Path, PathBuf};

/// The name that means all devices.
const ALL: &str = "all";

const SETTINGS: &str = "/proc/sys/net/ipv4";

fn directory() -> PathBuf {
    Path::new(SETTINGS).join("conf")
}

/// The names of all devices.
pub(super) fn devices() -> io::Result<Vec<String>> {
    let names = match std::fs::read_dir(directory()) {
        // The kernel has no IPv4.
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?.map(|it| it.map(|it| it.file_name())).collect::<io::Result<Vec<_>>>()?,
    };
    let names = names.into_iter().filter_map(|it| it.into_string().ok());
    Ok(names.filter(|it| it != ALL && it != "default").collect())
}

/// Whether a device is a bridge.
pub(super) fn is_bridge(device: &str) -> bool {
    Path::new("/sys/class/net").join(device).join("bridge").exists()
}

/// Reads a setting of the whole host.
pub(super) fn read_global(name: &str) -> io::Result<String> {
    Ok(std::fs::read_to_string(Path::new(SETTINGS).join(name))?.trim_end().to_owned())
}

/// Reads a setting of a device. `None` if the device was removed.
pub(super) fn read(device: &str, name: &str) -> io::Result<Option<String>> {
    match std::fs::read_to_string(directory().join(device).join(name)) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        text => Ok(Some(text?.trim_end().to_owned())),
    }
}

/// Disables IPv6 for a device. Does nothing if the kernel has no IPv6.
pub(super) fn disable_ipv6(device: &str) -> io::Result<()> {
    let file = Path::new("/proc/sys/net/ipv6/conf").join(device).join("disable_ipv6");
    match std::fs::write(file, "1") {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Changes a setting of a device, unless it already has the value, since `/proc` may be read-only. Does nothing if the device
/// was removed.
pub(super) fn write(device: &str, name: &str, value: &str) -> io::Result<()> {
    if read(device, name)?.is_none_or(|it| it == value) {
        return Ok(());
    }
    match std::fs::write(directory().join(device).join(name), value) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

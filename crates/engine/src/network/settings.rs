//! Settings of the kernel for IPv4, of each device of this thread's network namespace.

use std::io;
use std::path::Path;

const DEVICES: &str = "/proc/sys/net/ipv4/conf";

/// The names of all devices.
pub(super) fn devices() -> io::Result<Vec<String>> {
    let names = match std::fs::read_dir(Path::new(DEVICES)) {
        // A kernel without IPv4.
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?.map(|it| it.map(|it| it.file_name())).collect::<io::Result<Vec<_>>>()?,
    };
    let names = names.into_iter().filter_map(|it| it.into_string().ok());
    Ok(names.filter(|it| it != "all" && it != "default").collect())
}

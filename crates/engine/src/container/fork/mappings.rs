//! Finds processes that write to files through shared mappings.

use std::io::ErrorKind;

use coracle_types::{Error, Result};

use crate::cgroup::ContainerGroup;

/// Names in `/proc/PID/maps` of mappings that have no file.
const MEMORY: [&str; 3] = ["/memfd:", "/dev/zero", "/SYSV"];

/// Whether a process has a shared, writable mapping of a file. The file's change time then shows only the first of many
/// writes. The processes must be frozen.
pub(super) fn share_files(group: &ContainerGroup) -> Result<bool> {
    for pid in group.processes()? {
        let path = format!("/proc/{pid}/maps");
        match std::fs::read(&path) {
            Ok(maps) if String::from_utf8_lossy(&maps).lines().any(writes_to_file) => return Ok(true),
            Ok(_) => {}
            Err(err) if err.kind() == ErrorKind::NotFound || err.raw_os_error() == Some(libc::ESRCH) => {}
            Err(source) => return Err(Error::Host { what: format!("cannot read `{path}`"), source }),
        }
    }
    Ok(false)
}

/// Parses a line of range, permissions, offset, device, inode and path.
fn writes_to_file(line: &str) -> bool {
    let mut fields = line.split_ascii_whitespace();
    let is_shared = fields.nth(1).is_some_and(|it| it.contains('s') && it.contains('w'));
    let has_inode = fields.nth(2).is_some_and(|it| it != "0");
    is_shared && has_inode && !fields.next().is_some_and(|path| MEMORY.iter().any(|it| path.starts_with(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shared_mapping_of_a_file_that_may_be_written_counts() {
        for (line, expected) in [
            ("7f00-7f01 rw-s 00000000 00:2f 1234                       /var/lib/data.mdb", true),
            ("7f00-7f01 -w-s 00001000 00:2f 1234                       /a file (deleted)", true),
            ("7f00-7f01 r--s 00000000 00:2f 1234                       /usr/share/zoneinfo", false),
            ("7f00-7f01 rw-p 00000000 00:2f 1234                       /lib/libc.so", false),
            ("7f00-7f01 rw-s 00000000 00:01 77                         /memfd:wayland (deleted)", false),
            ("7f00-7f01 rw-p 00000000 00:00 0                          [heap]", false),
            ("7f00-7f01 rw-s 00000000 00:00 0", false),
        ] {
            assert_eq!(writes_to_file(line), expected, "{line}");
        }
    }
}

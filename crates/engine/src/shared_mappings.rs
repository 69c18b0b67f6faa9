//! Finds processes that write to files through shared mappings.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use coracle_types::{Error, Result};

use crate::cgroup::ContainerGroup;

/// Names in `/proc/PID/maps` of mappings that have no file.
const MEMORY: [&str; 3] = ["/memfd:", "/dev/zero", "/SYSV"];

/// The paths of files that a process has a shared, writable mapping of, relative to the root. The change time of such a
/// file shows only the first of many writes. The processes must be frozen.
pub(crate) fn shared_files(group: &ContainerGroup) -> Result<BTreeSet<Vec<u8>>> {
    let mut shared = BTreeSet::new();
    for pid in group.processes()? {
        let path = format!("/proc/{pid}/maps");
        match std::fs::read(&path) {
            Ok(maps) => {
                for path in maps.split(|it| *it == b'\n').filter_map(shared_file) {
                    shared.extend(with_line_breaks(&path));
                    shared.insert(path);
                }
            }
            Err(err) if err.kind() == ErrorKind::NotFound || err.raw_os_error() == Some(libc::ESRCH) => {}
            Err(source) => return Err(Error::Host { what: format!("cannot read `{path}`"), source }),
        }
    }
    Ok(shared)
}

/// The kernel writes a line break in a name as `\012`. Another name can have these four characters.
fn with_line_breaks(path: &[u8]) -> Option<Vec<u8>> {
    let mut parts = Vec::new();
    let mut rest = path;
    while let Some(at) = memchr::memmem::find(rest, b"\\012") {
        parts.extend([&rest[..at], b"\n"]);
        rest = &rest[at + 4..];
    }
    (!parts.is_empty()).then(|| [parts.concat(), rest.to_vec()].concat())
}

/// Parses a line of range, permissions, offset, device, inode and path.
fn shared_file(line: &[u8]) -> Option<Vec<u8>> {
    let mut rest = line;
    let mut field = || {
        let text = rest.trim_ascii_start();
        let (field, after) = text.split_at(text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len()));
        rest = after;
        field
    };
    let [_range, permissions, _offset, _device, inode] = std::array::from_fn(|_| field());
    let is_shared = permissions.contains(&b's') && permissions.contains(&b'w');
    let path = rest.trim_ascii_start();
    let is_file = inode != b"0" && !MEMORY.iter().any(|it| path.starts_with(it.as_bytes()));
    (is_shared && is_file).then(|| path.strip_prefix(b"/").unwrap_or(path).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shared_mapping_of_a_file_that_may_be_written_counts() {
        for (line, expected) in [
            ("7f00-7f01 rw-s 00000000 00:2f 1234                       /var/lib/data.mdb", Some("var/lib/data.mdb")),
            ("7f00-7f01 -w-s 00001000 00:2f 1234                       /a file", Some("a file")),
            ("7f00-7f01 r--s 00000000 00:2f 1234                       /usr/share/zoneinfo", None),
            ("7f00-7f01 rw-p 00000000 00:2f 1234                       /lib/libc.so", None),
            ("7f00-7f01 rw-s 00000000 00:01 77                         /memfd:wayland (deleted)", None),
            ("7f00-7f01 rw-p 00000000 00:00 0                          [heap]", None),
            ("7f00-7f01 rw-s 00000000 00:00 0", None),
            ("", None),
        ] {
            assert_eq!(shared_file(line.as_bytes()).as_deref(), expected.map(str::as_bytes), "{line}");
        }
        assert_eq!(with_line_breaks(b"a\\012b\\012").as_deref(), Some(&b"a\nb\n"[..]));
        assert_eq!(with_line_breaks(b"a/b"), None);
    }
}

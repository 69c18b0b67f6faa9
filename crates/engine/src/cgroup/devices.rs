//! The devices that a container may open, by version 1's controller.
//!
//! Version 2 has programs of the kernel's packet filter for it. There is none here: no preset of capabilities has
//! `CAP_MKNOD`, and every mount of a container but `/dev` is `nodev`, so that no other device can be opened in any case.

use std::path::Path;
use std::{fs, io};

/// The list of `runc` and Docker without the permission to make nodes of any device: null, zero, full, random, urandom,
/// tty, console, ptmx and terminals.
const ALLOWED: &[&str] = &[
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:1 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
];

/// Allows these devices and no other, unless the group has a list already: a new group has that of its parent.
pub(super) fn restrict(group: &Path) -> io::Result<()> {
    if !fs::read_to_string(group.join("devices.list"))?.starts_with('a') {
        return Ok(());
    }
    fs::write(group.join("devices.deny"), "a")?;
    ALLOWED.iter().try_for_each(|it| fs::write(group.join("devices.allow"), it))
}

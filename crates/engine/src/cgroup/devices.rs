//! Restricts the devices that a container may open, with the controller of version 1.
//!
//! Version 2 needs a BPF program for that, which Coracle does not install. It is not needed: no preset of capabilities has
//! `CAP_MKNOD`, and every mount of a container except `/dev` is `nodev`, so no other device can be opened in any case.

use std::path::Path;
use std::{fs, io};

/// The list of `runc` and Docker, without the permission to create device nodes: null, zero, full, random, urandom, tty,
/// console, ptmx and terminals.
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

/// Allows only these devices, unless the group already has a list: a new group inherits that of its parent.
pub(super) fn restrict(group: &Path) -> io::Result<()> {
    if !fs::read_to_string(group.join("devices.list"))?.starts_with('a') {
        return Ok(());
    }
    fs::write(group.join("devices.deny"), "a")?;
    ALLOWED.iter().try_for_each(|it| fs::write(group.join("devices.allow"), it))
}

//! Creates symbolic links.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, renameat, symlinkat, unlinkat};
use rustix::io::Result;

use super::parent::ParentAndName;
use super::put::replaced_file;
use super::requested_path::RequestedPath;
use crate::atomic::temporary_name;
use crate::protocol::{ErrorCode, RpcError};

/// Longest target of a link in bytes: the kernel's limit.
const MAX_TARGET: usize = 4095;

/// Checks the target of a link.
pub(super) fn check(target: &str) -> std::result::Result<(), RpcError> {
    if (1..=MAX_TARGET).contains(&target.len()) && !target.contains('\0') {
        return Ok(());
    }
    Err(RpcError::new(
        ErrorCode::Invalid,
        format!("the target of a link must have 1 to {MAX_TARGET} bytes without a NUL"),
    ))
}

/// Creates a link. With `replace` an existing entry is replaced atomically.
pub(super) fn create(
    requested: &RequestedPath,
    location: &ParentAndName,
    target: &str,
    replace: bool,
) -> std::result::Result<(), RpcError> {
    replaced_file(requested, location, replace)?;
    let ParentAndName { dir, name } = location;
    let created = match replace {
        false => symlinkat(target, dir, name.as_slice()),
        true => replace_by_link(dir, name, target),
    };
    created.map_err(|it| requested.error(it))
}

fn replace_by_link(dir: &OwnedFd, name: &[u8], target: &str) -> Result<()> {
    let temporary = temporary_name()?;
    symlinkat(target, dir, &temporary)?;
    let done = renameat(dir, &temporary, dir, name);
    if done.is_err() {
        let _ = unlinkat(dir, &temporary, AtFlags::empty());
    }
    done
}

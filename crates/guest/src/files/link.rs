//! Symbolic links.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, renameat, symlinkat, unlinkat};
use rustix::io::Result;

use super::parent::ParentAndName;
use super::put::there;
use super::requested_path::RequestedPath;
use crate::os::atomic::temporary_name;
use crate::protocol::{ErrorCode, RpcError};

/// Bytes that a link can say, at most: the kernel's limit.
const MAX_TARGET: usize = 4095;

/// Whether a link can say that.
pub(super) fn check(target: &str) -> std::result::Result<(), RpcError> {
    if (1..=MAX_TARGET).contains(&target.len()) && !target.contains('\0') {
        return Ok(());
    }
    Err(RpcError::new(ErrorCode::Invalid, format!("a link leads to 1 to {MAX_TARGET} bytes without a NUL")))
}

/// Makes a link. With `replace` what is there stays until it is replaced.
pub(super) fn create(
    asked: &RequestedPath,
    spot: &ParentAndName,
    target: &str,
    replace: bool,
) -> std::result::Result<(), RpcError> {
    there(asked, spot, replace)?;
    let ParentAndName { dir, name } = spot;
    let made = match replace {
        false => symlinkat(target, dir, name.as_slice()),
        true => replaced(dir, name, target),
    };
    made.map_err(|it| asked.fault(it))
}

fn replaced(dir: &OwnedFd, name: &[u8], target: &str) -> Result<()> {
    let beside = temporary_name()?;
    symlinkat(target, dir, &beside)?;
    let done = renameat(dir, &beside, dir, name);
    if done.is_err() {
        let _ = unlinkat(dir, &beside, AtFlags::empty());
    }
    done
}

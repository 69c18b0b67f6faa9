//! Symbolic links, and names that must be free.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, RenameFlags, linkat, renameat, renameat_with, statat, symlinkat, unlinkat};
use rustix::io::{Errno, Result};

use super::fault::Asked;
use super::place::{Spot, temporary_name};
use super::put::there;
use crate::wire::{Fault, FaultCode};

/// Bytes that a link can say, at most: the kernel's limit.
const LONGEST: usize = 4095;

/// Whether a link can say that.
pub(super) fn check(target: &str) -> std::result::Result<(), Fault> {
    if (1..=LONGEST).contains(&target.len()) && !target.contains('\0') {
        return Ok(());
    }
    Err(Fault::new(FaultCode::Invalid, format!("a link leads to 1 to {LONGEST} bytes without a NUL")))
}

/// Makes a link. With `replace` what is there stays until it is replaced.
pub(super) fn make(asked: &Asked, spot: &Spot, target: &str, replace: bool) -> std::result::Result<(), Fault> {
    there(asked, spot, replace)?;
    let Spot { dir, name } = spot;
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

/// Renames within a directory, to a name that is free.
pub(crate) fn rename(dir: &OwnedFd, from: &[u8], to: &[u8]) -> Result<()> {
    match renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        // Not every file system of a desktop's virtual machine knows the flag; a second name is never a replacement.
        Err(Errno::INVAL | Errno::NOSYS) => match linkat(dir, from, dir, to, AtFlags::empty()) {
            Err(Errno::PERM | Errno::ISDIR) => rename_dir(dir, from, to),
            linked => linked.and_then(|()| unlinkat(dir, from, AtFlags::empty())),
        },
        done => done,
    }
}

/// A directory has no second name. Whoever makes something of that name meanwhile loses no more than an empty directory.
fn rename_dir(dir: &OwnedFd, from: &[u8], to: &[u8]) -> Result<()> {
    match statat(dir, to, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => renameat(dir, from, dir, to),
        there => there.and(Err(Errno::EXIST)),
    }
}

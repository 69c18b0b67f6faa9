//! Temporarily changes the ids with which this thread creates files.
#![expect(unsafe_code, reason = "system calls that change one thread alone")]

use rustix::io::Result;
use rustix::thread::{CapabilitySets, capabilities, set_capabilities};

/// Makes this thread create files as another user, with all its capabilities, until it is dropped.
#[derive(Debug)]
pub(super) struct FsIds {
    uid: u32,
    gid: u32,
}

impl FsIds {
    pub(super) fn become_user(uid: u32, gid: u32) -> Result<Self> {
        let before = Self { uid: set_fs_uid(uid), gid: set_fs_gid(gid) };
        // The kernel removes the capabilities for files from a thread that leaves uid 0.
        let sets = capabilities(None)?;
        set_capabilities(None, CapabilitySets { effective: sets.permitted, ..sets })?;
        Ok(before)
    }
}

impl Drop for FsIds {
    fn drop(&mut self) {
        set_fs_gid(self.gid);
        set_fs_uid(self.uid);
    }
}

/// Sets the uid for files, and returns the previous one.
fn set_fs_uid(uid: u32) -> u32 {
    // SAFETY: takes a number, and changes this thread alone.
    let before = unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    u32::try_from(before).unwrap_or(0)
}

fn set_fs_gid(gid: u32) -> u32 {
    // SAFETY: takes a number, and changes this thread alone.
    let before = unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    u32::try_from(before).unwrap_or(0)
}

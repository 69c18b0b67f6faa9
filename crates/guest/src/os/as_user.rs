//! Runs a closure with another user's ids.

use std::process::abort;

use rustix::io::{Errno, Result};
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use rustix::{fs::Gid, fs::Uid};

use crate::os::machine::Ids;

/// Runs a closure with the effective ids of a user, on this thread only. The real and saved ids do not change, so the ids
/// can be restored, also after a panic. An effective uid other than 0 has no capability: the kernel drops and restores them.
///
/// # Errors
/// Fails if the ids cannot be set; then `act` did not run.
pub(crate) fn as_user<T>(ids: &Ids, act: impl FnOnce() -> T) -> Result<T> {
    let own = geteuid();
    if !own.is_root() {
        return if own.as_raw() == ids.uid { Ok(act()) } else { Err(Errno::PERM) };
    }
    // To the kernel this number means "no change": the call would run as root.
    if ids.uid == u32::MAX || ids.gid == u32::MAX || ids.groups.contains(&u32::MAX) {
        return Err(Errno::INVAL);
    }
    let mut back = RestoreIds { gid: getegid(), groups: Some(getgroups()?) };
    let groups: Vec<Gid> = ids.groups.iter().map(|it| Gid::from_raw(*it)).collect();
    match set_thread_groups(&groups) {
        // A user namespace with one id forbids it: root retains its current groups.
        Err(Errno::PERM) if ids.uid == 0 => back.groups = None,
        done => done?,
    }
    set_thread_res_gid(None, Gid::from_raw(ids.gid), None)?;
    set_thread_res_uid(None, Uid::from_raw(ids.uid), None)?;
    Ok(act())
}

struct RestoreIds {
    gid: Gid,
    /// `None` if they were not changed.
    groups: Option<Vec<Gid>>,
}

impl Drop for RestoreIds {
    fn drop(&mut self) {
        // The uid first: it restores the capabilities that the other calls need.
        let restored = set_thread_res_uid(None, Uid::ROOT, None)
            .and_then(|()| set_thread_res_gid(None, self.gid, None))
            .and_then(|()| self.groups.as_deref().map_or(Ok(()), set_thread_groups));
        if restored.is_err() {
            abort(); // A thread that would serve the next call as this user is worse than no guest.
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn current_ids() -> (u32, u32, Vec<u32>) {
        let groups = getgroups().unwrap().into_iter().map(Gid::as_raw).collect();
        (geteuid().as_raw(), getegid().as_raw(), groups)
    }

    #[test]
    fn a_thread_restores_its_ids_even_after_a_panic() {
        if !geteuid().is_root() {
            return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
        }
        let (ids, before) = (Ids { uid: 1234, gid: 2345, groups: vec![7, 8] }, current_ids());
        assert_eq!(as_user(&ids, current_ids).unwrap(), (1234, 2345, vec![7, 8]));
        assert_eq!(current_ids(), before);
        let panicked = catch_unwind(|| as_user(&ids, || assert_eq!(geteuid().as_raw(), 1, "on purpose")));
        assert!(panicked.is_err());
        assert_eq!(current_ids(), before);
    }

    #[test]
    fn an_id_that_would_leave_the_thread_root_is_refused() {
        for (uid, gid) in [(u32::MAX, 1), (1, u32::MAX)] {
            assert!(as_user(&Ids { uid, gid, groups: vec![] }, || ()).is_err());
        }
    }
}

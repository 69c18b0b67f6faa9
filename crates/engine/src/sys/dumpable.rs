//! Controls whether other processes may read the memory of this one.
//!
//! A child that enters a container briefly shares this process's memory, which processes of the container must not read. So
//! this process is not dumpable meanwhile. Its files in `/proc`, and those of children that share its memory, then belong to
//! root, and without root no id map can be written. This module coordinates threads that need the one or the other.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};

/// The number of children that share memory now, and the setting before the first of them.
#[derive(Debug)]
struct SharedMemory {
    children: u32,
    before: Option<DumpableBehavior>,
}

static SHARED: Mutex<SharedMemory> = Mutex::new(SharedMemory { children: 0, before: None });
static NO_CHILD: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, SharedMemory> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process not dumpable until it is dropped.
#[derive(Debug)]
pub(super) struct NotDumpable(());

impl NotDumpable {
    pub(super) fn new() -> Self {
        let mut shared = lock();
        if shared.children == 0 {
            shared.before = dumpable_behavior().ok();
            let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        }
        shared.children += 1;
        Self(())
    }
}

impl Drop for NotDumpable {
    fn drop(&mut self) {
        let mut shared = lock();
        shared.children -= 1;
        if shared.children == 0 {
            if let Some(before) = shared.before.take() {
                let _ = set_dumpable_behavior(before);
            }
            NO_CHILD.notify_all();
        }
    }
}

/// Runs `work` while no [`NotDumpable`] exists.
pub(crate) fn while_dumpable<T>(work: impl FnOnce() -> T) -> T {
    let shared = NO_CHILD.wait_while(lock(), |it| it.children > 0).unwrap_or_else(PoisonError::into_inner);
    let done = work();
    drop(shared);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_as_before_when_the_last_of_several_children_is_gone() {
        while_dumpable(|| ());
        let (first, second) = (NotDumpable::new(), NotDumpable::new());
        drop(first);
        assert_eq!(dumpable_behavior().ok(), Some(DumpableBehavior::NotDumpable));
        drop(second);
        assert!(while_dumpable(|| dumpable_behavior().ok() != Some(DumpableBehavior::NotDumpable)));
    }
}

//! What a new content leaves to be done when it is answered.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::fs::fsync;
use tokio::runtime::Handle;

/// The disk's part that no caller has to wait for, each of which takes about as long as all of the rest. Done when this is
/// dropped, on a thread of its own. Whoever drops this is nobody else's user: the thread may be a new one, which has the
/// identity of its maker for good.
#[derive(Debug, Default)]
pub(super) struct Afterwards(Mutex<Option<Replaced>>);

/// A name that leads to another content.
#[derive(Debug)]
pub(super) struct Replaced {
    /// Where the name stands. Until it is on the disk, a machine that dies leaves the old content or the new one, each whole:
    /// the new one was there before its name.
    pub(super) dir: Option<OwnedFd>,
    /// The file that gave way. Without a name it is freed at its last close.
    pub(super) old: Option<OwnedFd>,
}

impl Afterwards {
    pub(super) fn settle(&self, replaced: Replaced) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(replaced);
    }
}

impl Drop for Afterwards {
    fn drop(&mut self) {
        let replaced = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(replaced), Ok(runtime)) = (replaced, Handle::try_current()) {
            runtime.spawn_blocking(move || replaced.settle());
        }
    }
}

impl Replaced {
    fn settle(self) {
        if let Some(dir) = self.dir {
            // Some file systems sync by themselves, and nobody is there to be told of one that fails: it fails what comes next.
            let _ = fsync(dir);
        }
        drop(self.old);
    }
}

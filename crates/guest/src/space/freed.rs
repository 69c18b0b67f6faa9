//! A file that gave way to another one, until nobody waits for its end.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::Handle;

/// A file without a name is freed at its last close, and the file system may take as long over that as over a write. So
/// this keeps it open until the act is over, and closes it on a thread of its own. Whoever drops this is nobody else's user:
/// the thread may be a new one, which has the identity of its maker for good.
#[derive(Debug, Default)]
pub(super) struct Freed(Mutex<Option<OwnedFd>>);

impl Freed {
    pub(super) fn later(&self, file: OwnedFd) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(file);
    }
}

impl Drop for Freed {
    fn drop(&mut self) {
        let file = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(file), Ok(runtime)) = (file, Handle::try_current()) {
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

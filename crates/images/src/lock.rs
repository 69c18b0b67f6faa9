//! Locks between processes. Waiting for one is reported.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use crate::{Error, Progress};

/// Reported while another process builds the image of the same key.
pub(crate) const SAME_IMAGE: &str = "another call builds the same image; waiting for it";

/// Polling interval. A blocking wait in the kernel would leave a thread behind when the call is cancelled.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Locks a file until the result is dropped. The first failed attempt is reported as `waiting`.
pub(crate) async fn lock(path: &Path, waiting: &str, progress: &Progress<'_>) -> Result<File, Error> {
    let locked = take(path, waiting, progress).await;
    locked.map_err(|source| Error::State { what: format!("lock `{}`", path.display()), source })
}

/// Like [`lock`], for a caller with its own error type.
pub(crate) async fn take(path: &Path, waiting: &str, progress: &Progress<'_>) -> io::Result<File> {
    let file = open(path)?;
    let mut reported = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if !reported => progress(waiting),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(source),
        }
        reported = true;
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        make_private_dir(dir)?;
    }
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

pub(crate) fn make_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_waiting_call_is_reported_once_and_gets_the_lock_when_it_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let (path, messages) = (dir.path().join("locks/x"), Mutex::new(Vec::new()));
        let report = |it: &str| messages.lock().unwrap().push(it.to_owned());
        let first = take(&path, "unused", &report).await.unwrap();
        let release = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(take(&path, "waiting", &report), release);
        assert!(second.is_ok());
        assert_eq!(*messages.lock().unwrap(), ["waiting"]);
    }
}

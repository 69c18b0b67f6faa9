//! A lock of all processes of one person, waited for in the open.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use crate::Progress;

/// Asks again and again rather than waiting in the kernel: a call that is cancelled must not leave a thread behind.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Holds the lock of a file until the answer is dropped. Who has to wait is told so once.
pub(crate) async fn take(path: &Path, waiting: &str, progress: &Progress<'_>) -> io::Result<File> {
    let file = open(path)?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if !told => progress(waiting),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(source),
        }
        told = true;
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
    async fn who_waits_is_told_once_and_gets_it_when_it_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let (path, said) = (dir.path().join("locks/x"), Mutex::new(Vec::new()));
        let tell = |it: &str| said.lock().unwrap().push(it.to_owned());
        let first = take(&path, "unused", &tell).await.unwrap();
        let release = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(take(&path, "waiting", &tell), release);
        assert!(second.is_ok());
        assert_eq!(*said.lock().unwrap(), ["waiting"]);
    }
}

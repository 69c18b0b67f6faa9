//! Whether Podman's service sees the containers of its program.
//!
//! A service that was started with another storage answers in the same words and has none of our containers: each would
//! seem to be gone. It is trusted once it knows a container that the program knows, and a file remembers that for as long
//! as socket and configuration stay as they are.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Interval at which the lists of both are compared if neither has a container that the other knows.
const COMPARE_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct StorageProof {
    /// Holds what [`identity`](Self::identity) was when it was proven.
    file: PathBuf,
    /// The socket, and the files that configure the storage.
    watched: Vec<PathBuf>,
    state: Mutex<ProofState>,
}

#[derive(Debug, Default)]
struct ProofState {
    proven: Option<String>,
    /// A container that the program made.
    witness: Option<String>,
    compared_at: Option<Instant>,
}

impl StorageProof {
    pub(crate) fn new(socket: &Path, config_dir: &Path, home: &Path) -> Self {
        let watched = vec![
            socket.to_owned(),
            "/etc/containers/storage.conf".into(),
            home.join(".config/containers/storage.conf"),
            config_dir.join("containers.conf"),
        ];
        Self { file: config_dir.join("podman-socket"), watched, state: Mutex::default() }
    }

    pub(crate) fn holds(&self) -> bool {
        let now = self.identity();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.proven.as_ref() == Some(&now) {
            return true;
        }
        let is_remembered = std::fs::read_to_string(&self.file).is_ok_and(|it| it == now);
        state.proven = is_remembered.then_some(now);
        is_remembered
    }

    /// The program made that container.
    pub(crate) fn add_witness(&self, id: &str) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).witness = Some(id.to_owned());
    }

    /// A container that the service has to know.
    pub(crate) fn witness(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).witness.clone()
    }

    /// Forgets the witness: it may have been removed.
    pub(crate) fn drop_witness(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).witness = None;
    }

    /// Whether it is time to compare the lists of both.
    pub(crate) fn is_due(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = state.compared_at.is_none_or(|it| it.elapsed() >= COMPARE_INTERVAL);
        if is_due {
            state.compared_at = Some(Instant::now());
        }
        is_due
    }

    /// Both know the same container.
    pub(crate) fn prove(&self) {
        let now = self.identity();
        if let Err(err) = std::fs::write(&self.file, &now) {
            tracing::debug!(%err, "cannot remember that Podman's socket can be used");
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner).proven = Some(now);
    }

    /// Changes with the socket and with the configuration.
    fn identity(&self) -> String {
        let line = |path: &PathBuf| match std::fs::metadata(path) {
            Ok(it) => format!("{} {} {}.{}\n", path.display(), it.ino(), it.ctime(), it.ctime_nsec()),
            Err(_) => format!("{} -\n", path.display()),
        };
        self.watched.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proven_is_remembered_until_the_socket_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        std::fs::write(&socket, "").unwrap();
        let proof = || StorageProof::new(&socket, dir.path(), dir.path());
        assert!(!proof().holds());
        let first = proof();
        first.prove();
        assert!(first.holds() && proof().holds());
        std::fs::rename(&socket, dir.path().join("old")).unwrap();
        std::fs::write(&socket, "").unwrap();
        assert!(!first.holds() && !proof().holds());
    }
}

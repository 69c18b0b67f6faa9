//! Records of operations in progress, so that another process can repair them if the current one dies.
//!
//! `pending/` has one symbolic link for each operation: its name says what is changed, its target by which process. Beginning
//! and finishing an operation take one system call each. Nothing is synced to the disk: after a power loss no process runs
//! anyway.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use coracle_types::{ContainerId, Error, Result, random_hex};

use crate::owner;

/// What an operation changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    CreateContainer(ContainerId),
    StartContainer(ContainerId),
    StopContainer(ContainerId),
    RemoveContainer(ContainerId),
    /// The container is frozen meanwhile.
    FreezeContainer(ContainerId),
    Networks,
    Volumes,
}

/// The operations in progress of a data directory.
#[derive(Clone, Debug)]
pub(crate) struct PendingOperations {
    dir: PathBuf,
}

/// An operation of this process. Dropped without [`finish`](Self::finish), it counts as interrupted.
#[derive(Debug)]
pub(crate) struct PendingOperation {
    path: Option<PathBuf>,
}

/// An operation whose process died or abandoned it.
#[derive(Debug)]
pub(crate) struct InterruptedOperation {
    pub(crate) operation: Operation,
    path: PathBuf,
}

/// The suffix of an operation that a living process abandoned.
const ABANDONED: &str = "abandoned";

impl PendingOperations {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Records an operation before its first step.
    pub(crate) fn begin(&self, operation: &Operation) -> Result<PendingOperation> {
        let path = self.dir.join(format!("{}.{}", operation.name(), random_hex::<8>()));
        let begun = symlink(owner::this_process(), &path);
        begun.map_err(|source| Error::Host { what: format!("cannot create `{}`", path.display()), source })?;
        Ok(PendingOperation { path: Some(path) })
    }

    /// Lists the operations whose process died or abandoned them.
    pub(crate) fn interrupted(&self) -> io::Result<Vec<InterruptedOperation>> {
        let entries = std::fs::read_dir(&self.dir)?;
        entries.filter_map(|it| it.map(|it| InterruptedOperation::read(&it.path())).transpose()).collect()
    }

    /// Forgets an interrupted operation that is obsolete: repairing it now would undo a later one.
    pub(crate) fn forget_interrupted(&self, operation: &Operation) -> Result<()> {
        let failed = |source| Error::Host { what: format!("cannot read `{}`", self.dir.display()), source };
        let interrupted = self.interrupted().map_err(failed)?;
        interrupted.into_iter().filter(|it| it.operation == *operation).for_each(InterruptedOperation::forget);
        Ok(())
    }
}

impl PendingOperation {
    /// Removes the record of a finished operation.
    pub(crate) fn finish(mut self) {
        if let Some(path) = self.path.take() {
            remove(&path);
        }
    }
}

impl Drop for PendingOperation {
    fn drop(&mut self) {
        let Some(path) = self.path.take() else { return };
        // If this fails, the operation counts as interrupted once this process has ended.
        let _ = std::fs::rename(&path, path.with_added_extension(ABANDONED));
    }
}

impl InterruptedOperation {
    fn read(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let operation = Operation::parse(name)?;
        let is_abandoned = || name.ends_with(ABANDONED);
        // Without a target, the operation has finished meanwhile.
        let target = std::fs::read_link(path).ok()?;
        let has_died = target.to_str().and_then(owner::has_died).unwrap_or(true);
        (has_died || is_abandoned()).then(|| Self { operation, path: path.to_owned() })
    }

    /// Removes the record of a repaired operation.
    pub(crate) fn forget(self) {
        remove(&self.path);
    }
}

/// Removes a record. If that fails, the operation is repaired once more, which is harmless.
fn remove(path: &Path) {
    if let Err(err) = std::fs::remove_file(path)
        && err.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(%err, "cannot remove `{}`", path.display());
    }
}

impl Operation {
    fn name(&self) -> String {
        match self {
            Self::CreateContainer(id) => format!("create.{id}"),
            Self::StartContainer(id) => format!("start.{id}"),
            Self::StopContainer(id) => format!("stop.{id}"),
            Self::RemoveContainer(id) => format!("remove.{id}"),
            Self::FreezeContainer(id) => format!("freeze.{id}"),
            Self::Networks => "networks.all".to_owned(),
            Self::Volumes => "volumes.all".to_owned(),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let (kind, object) = (parts.next()?, parts.next()?);
        let container = || ContainerId::parse(object).ok();
        Some(match kind {
            "create" => Self::CreateContainer(container()?),
            "start" => Self::StartContainer(container()?),
            "stop" => Self::StopContainer(container()?),
            "remove" => Self::RemoveContainer(container()?),
            "freeze" => Self::FreezeContainer(container()?),
            "networks" => Self::Networks,
            "volumes" => Self::Volumes,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations() -> (tempfile::TempDir, PendingOperations) {
        let dir = tempfile::tempdir().unwrap();
        let pending = PendingOperations::new(dir.path().to_owned());
        (dir, pending)
    }

    fn found(pending: &PendingOperations) -> Vec<Operation> {
        pending.interrupted().unwrap().into_iter().map(|it| it.operation).collect()
    }

    #[test]
    fn an_operation_is_interrupted_when_its_process_has_died_or_given_it_up() {
        let (dir, pending) = operations();
        let [id, other] = ["a", "b"].map(|it| ContainerId::parse(it.repeat(64)).unwrap());
        let all = [
            Operation::CreateContainer(id.clone()),
            Operation::StartContainer(id.clone()),
            Operation::StopContainer(id.clone()),
            Operation::RemoveContainer(id.clone()),
            Operation::FreezeContainer(id),
            Operation::Networks,
            Operation::Volumes,
        ];
        for operation in &all {
            let running = pending.begin(operation).unwrap();
            assert_eq!(found(&pending), []);
            drop(running);
            assert_eq!(found(&pending).as_slice(), std::slice::from_ref(operation));
            pending.interrupted().unwrap().into_iter().for_each(InterruptedOperation::forget);
            pending.begin(operation).unwrap().finish();
            assert_eq!(found(&pending), []);
            drop(pending.begin(operation).unwrap());
            pending.forget_interrupted(&Operation::CreateContainer(other.clone())).unwrap();
            assert_eq!(found(&pending).len(), 1);
            pending.forget_interrupted(operation).unwrap();
            assert_eq!(found(&pending), []);
            symlink("1-0-another", dir.path().join(format!("{}.1", operation.name()))).unwrap();
            assert_eq!(found(&pending).as_slice(), std::slice::from_ref(operation));
            pending.interrupted().unwrap().into_iter().for_each(InterruptedOperation::forget);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

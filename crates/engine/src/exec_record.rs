//! Records a command that entered a container, as a file. Without a control group, the kernel does not list the processes of
//! a container.

use std::io;
use std::path::{Path, PathBuf};

use coracle_types::{ProcessId, StoredFileError, parse_stored};

/// The file of one command, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ExecRecord(PathBuf);

impl ExecRecord {
    /// Writes the record. `None` if the process has ended.
    pub(crate) fn write(dir: &Path, pid: u32) -> io::Result<Option<Self>> {
        let Some(process) = ProcessId::from_pid(pid) else { return Ok(None) };
        std::fs::create_dir_all(dir)?;
        let record = Self(dir.join(pid.to_string()));
        std::fs::write(&record.0, serde_json::to_vec(&process)?)?;
        Ok(Some(record))
    }
}

impl Drop for ExecRecord {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns how many commands run, including those whose caller was killed, and removes the records of those that have ended.
/// Records of a newer version count as running.
pub(crate) fn recorded(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|it| runs(it.path())).count()
}

fn runs(record: PathBuf) -> bool {
    let bytes = std::fs::read(&record).unwrap_or_default();
    let process: ProcessId = match parse_stored(&record, &bytes) {
        Ok(process) => process,
        Err(err) => return matches!(err, StoredFileError::Newer(_)),
    };
    let runs = process.alive();
    if !runs {
        drop(ExecRecord(record));
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_counts_until_it_has_ended_or_its_record_is_dropped() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("execs");
        assert_eq!(recorded(&dir), 0);
        let own = ExecRecord::write(&dir, std::process::id()).unwrap();
        assert!(own.is_some());
        let ended = ProcessId { start: 1, ..ProcessId::current() };
        std::fs::write(dir.join("1"), serde_json::to_vec(&ended).unwrap()).unwrap();
        assert_eq!((recorded(&dir), dir.join("1").exists()), (1, false));
        std::fs::write(dir.join("2"), r#"{"cgroup":"a"}"#).unwrap();
        assert_eq!(recorded(&dir), 2);
        std::fs::remove_file(dir.join("2")).unwrap();
        drop(own);
        assert_eq!(recorded(&dir), 0);
    }
}

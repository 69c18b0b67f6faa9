//! A command that entered a container, as a file: without a control group the kernel does not tell who is inside.

use std::io;
use std::path::PathBuf;

use coracle_runtime::ProcessId;

use super::super::directory::{ContainerDir, read_json, write_json};

/// The file of one command, which goes when this is dropped.
#[derive(Debug)]
pub(super) struct ExecRecord(PathBuf);

impl ExecRecord {
    /// `None` when the process has ended.
    pub(super) fn write(container: &ContainerDir, pid: u32) -> io::Result<Option<Self>> {
        let Some(process) = ProcessId::from_pid(pid) else { return Ok(None) };
        let dir = container.execs();
        std::fs::create_dir_all(&dir)?;
        let record = Self(dir.join(pid.to_string()));
        write_json(&record.0, &process)?;
        Ok(Some(record))
    }
}

impl Drop for ExecRecord {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// How many commands run. Those whose caller was killed go on; their files go when they have ended.
pub(super) fn recorded(container: &ContainerDir) -> usize {
    let entries = std::fs::read_dir(container.execs()).into_iter().flatten().flatten();
    entries.filter(|it| runs(it.path())).count()
}

fn runs(record: PathBuf) -> bool {
    let Ok(Some(process)) = read_json::<ProcessId>(&record) else { return false };
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
        let dir = tempfile::tempdir().unwrap();
        let container = ContainerDir::at(dir.path().to_owned());
        assert_eq!(recorded(&container), 0);
        let own = ExecRecord::write(&container, std::process::id()).unwrap();
        assert!(own.is_some());
        let ended = ProcessId { start: 1, ..ProcessId::current() };
        write_json(&container.execs().join("1"), &ended).unwrap();
        assert_eq!((recorded(&container), container.execs().join("1").exists()), (1, false));
        drop(own);
        assert_eq!(recorded(&container), 0);
    }
}

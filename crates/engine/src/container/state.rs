//! Reads the state of a container from its files and the process table.

use std::io;
use std::path::Path;

use coracle_types::{ProcessId, boot_id};
use serde::{Deserialize, Serialize};

use super::directory::{ContainerDir, read_json};
use crate::cgroup::ContainerGroup;

/// A start of a container, recorded before its process is created.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    pub(crate) boot: String,
    /// In RFC 3339 format.
    pub(crate) started_at: String,
    pub(crate) group: ContainerGroup,
    /// Why it has no user namespace of its own, if it should have one.
    pub(crate) shares_users: Option<String>,
}

/// The state of a container.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Created,
    Running { run: RunRecord, process: ProcessId },
    Exited { run: RunRecord, code: i64 },
}

/// The exit code of a process that was killed.
const KILLED: i64 = 128 + 9;

impl RunRecord {
    pub(crate) fn new(group: ContainerGroup) -> Self {
        let started_at = jiff::Timestamp::now().to_string();
        Self { boot: boot_id().to_owned(), started_at, group, shares_users: None }
    }
}

impl State {
    pub(crate) fn read(dir: &ContainerDir) -> io::Result<Self> {
        let Some(run) = read_json::<RunRecord>(&dir.run_file())? else { return Ok(Self::Created) };
        let Some(process) = process_of(dir, &run.boot)? else { return Ok(Self::Created) };
        if process.alive() {
            return Ok(Self::Running { run, process });
        }
        // A process that was killed could not write its exit code.
        let code = read_text(&dir.exit_file())?.and_then(|it| it.trim().parse().ok()).unwrap_or(KILLED);
        Ok(Self::Exited { run, code })
    }

    pub(crate) fn process(&self) -> Option<&ProcessId> {
        match self {
            Self::Running { process, .. } => Some(process),
            Self::Created | Self::Exited { .. } => None,
        }
    }

    pub(crate) fn run(&self) -> Option<&RunRecord> {
        match self {
            Self::Running { run, .. } | Self::Exited { run, .. } => Some(run),
            Self::Created => None,
        }
    }
}

fn process_of(dir: &ContainerDir, boot: &str) -> io::Result<Option<ProcessId>> {
    Ok(read_text(&dir.process_file())?.and_then(|it| parse_stat(&it, boot)))
}

/// Parses fields 1 and 22. The second field, the name, may contain spaces and parentheses, so fields are counted from the
/// last parenthesis.
fn parse_stat(line: &str, boot: &str) -> Option<ProcessId> {
    let pid = line.split_once(' ')?.0.parse().ok()?;
    let start = line.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    Some(ProcessId { pid, start, boot: boot.to_owned() })
}

fn read_text(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_own_line_of_proc() {
        let line = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(parse_stat(&line, boot_id()), Some(ProcessId::current()));
        let stat_line = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20\n";
        assert_eq!(parse_stat(stat_line, "b").map(|it| (it.pid, it.start)), Some((12, 777)));
        assert_eq!(parse_stat("", "b"), None);
    }
}

//! Programs that go on running after us: started once, remembered by process id, ended by that id only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::sh::{Sh, sh, target, wait_until};

/// A directory with the process ids and logs of programs that were started here.
#[derive(Clone, Debug)]
pub(super) struct DaemonRecords(PathBuf);

impl DaemonRecords {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// Those of Docker and Podman.
    fn of_engines() -> Self {
        Self(target().join("engines"))
    }

    /// Starts `program` and waits until it answers; if it ends first or the time is over, the error has its log's tail.
    pub(super) fn start(
        &self,
        name: &str,
        program: Sh,
        limit: Duration,
        mut answers: impl FnMut() -> bool,
    ) -> Result<()> {
        fs::create_dir_all(&self.0).with_context(|| format!("create {}", self.0.display()))?;
        let log = self.0.join(format!("{name}.log"));
        let id = program.leave_running(&log)?;
        let began = born(id).unwrap_or_default();
        fs::write(self.record(name), format!("{id} {began}\n"))?;
        let mut gone = false;
        let up = wait_until(limit, || {
            gone = born(id).is_none();
            gone || answers()
        });
        if gone || !up {
            bail!("{name} {} {}", if gone { "ended" } else { "does not answer" }, tail(&log));
        }
        Ok(())
    }

    /// The process that [`Self::start`] recorded, if it is still that process: an id alone may belong to another one
    /// by now.
    pub(super) fn recorded(&self, name: &str) -> Option<u32> {
        let text = fs::read_to_string(self.record(name)).ok()?;
        let (id, began) = text.trim().split_once(' ')?;
        let id = id.parse().ok()?;
        (born(id)? == began).then_some(id)
    }

    /// Ends what [`Self::start`] recorded: TERM, and KILL if that is not enough. Whether there was something to end.
    pub(super) fn stop(&self, name: &str, program: &str) -> Result<bool> {
        let running = self.recorded(name);
        if let Some(id) = running {
            signal(id, "TERM")?;
            if !wait_until(Duration::from_secs(30), || born(id).is_none()) {
                signal(id, "KILL")?;
                if !wait_until(Duration::from_secs(5), || born(id).is_none()) {
                    bail!("{program} (process {id}) does not end");
                }
            }
        }
        let _ = fs::remove_file(self.record(name)); // there may be none
        Ok(running.is_some())
    }

    fn record(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.pid"))
    }
}

/// [`DaemonRecords::start`] for Docker and Podman.
pub(super) fn start(name: &str, program: Sh, limit: Duration, answers: impl FnMut() -> bool) -> Result<()> {
    DaemonRecords::of_engines().start(name, program, limit, answers)
}

/// [`DaemonRecords::stop`] for Docker and Podman.
pub(super) fn stop(name: &str, program: &str) -> Result<bool> {
    DaemonRecords::of_engines().stop(name, program)
}

/// Where a log is, and its last lines.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    format!("(log: {})\n  {}", log.display(), lines[lines.len().saturating_sub(15)..].join("\n  "))
}

/// The shell's own `kill`: a small system has no program of that name.
pub(super) fn signal(id: u32, name: &str) -> Result<()> {
    sh("sh", ["-c", &format!("kill -{name} {id}")]).run()
}

/// Start time of a process, in ticks since boot; `None` if it is gone or a zombie.
pub(super) fn born(id: u32) -> Option<String> {
    started(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Field 22 of `stat`, counted behind the name, which may hold spaces and brackets itself.
fn started(stat: &str) -> Option<String> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let dead = matches!(fields.first()?, &"Z" | &"X");
    if dead { None } else { fields.get(19).map(|it| (*it).to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 4242 1 2";

    #[test]
    fn the_start_is_found_behind_a_name_with_brackets() {
        assert_eq!(started(STAT).as_deref(), Some("4242"));
    }

    #[test]
    fn a_process_that_waits_to_be_reaped_is_gone() {
        assert_eq!(started(&STAT.replace(") S", ") Z")), None);
    }

    #[test]
    fn this_process_was_born_and_process_0_was_not() {
        assert!(born(std::process::id()).is_some());
        assert!(born(0).is_none());
    }
}

//! The process group of a program that was started, to end the program with all that it started.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);

/// Limit of the time that a killed program takes to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

const POLL: Duration = Duration::from_millis(10);

/// The group of a program. It is killed when this is dropped, as when the task that runs the program is dropped, unless the
/// program ended by itself.
#[derive(Debug)]
pub struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// The group of a program that [`spawn`](crate::process::spawn) started. It is dropped before the program: the number
    /// of both is valid until then.
    #[must_use]
    pub fn new(child: &Child) -> Self {
        Self(child.id().and_then(|it| Pid::from_raw(it.cast_signed())))
    }

    /// Waits for the program's end. Safe to abandon.
    ///
    /// # Errors
    /// When the system does not tell of its end.
    pub async fn wait(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let status = child.wait().await?;
        self.ended();
        Ok(status)
    }

    /// The program ended by itself and was waited for: its number may soon be another's.
    pub(crate) fn ended(&mut self) {
        self.0 = None;
    }

    /// Ends a program that is out of time, unless it ended by itself: TERM to the group, and KILL after two seconds.
    pub async fn end(self, child: &mut Child) {
        let Some(leader) = self.0 else { return };
        let _ = kill_process_group(leader, Signal::TERM);
        let until = Instant::now() + GRACE;
        // The program is waited for after the group was killed: its number cannot be another's before.
        while !has_exited(leader) && Instant::now() < until {
            sleep(POLL).await;
        }
        drop(self);
        let _ = timeout(KILL_TIMEOUT, child.wait()).await;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Whether a program has exited, which stays to be waited for.
fn has_exited(program: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(program), look), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Invocation, Stdin, run};

    /// A program that starts another one, whose pid it writes to the file.
    fn parent(file: &std::path::Path) -> Invocation {
        let script = format!("sleep 600 & echo $! >{}; wait", file.display());
        Invocation::new("/bin/sh", ["-c", script.as_str()])
    }

    async fn has_ended(pid: &str) {
        let stat = format!("/proc/{}/stat", pid.trim());
        let is_there = || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|it| !it.1.starts_with('Z'))
        };
        while is_there() {
            sleep(POLL).await;
        }
    }

    #[tokio::test]
    async fn a_deadline_ends_what_the_program_started() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let within = (Duration::from_secs(1), 10);
        assert!(run("sh", &parent(file.path()), Stdin::Empty, within).await.is_err());
        has_ended(&std::fs::read_to_string(file.path()).unwrap()).await;
    }

    #[tokio::test]
    async fn what_a_program_started_ends_when_it_is_given_up() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let said = || std::fs::read_to_string(file.path()).unwrap();
        let given_up = async {
            while !said().ends_with('\n') {
                sleep(POLL).await;
            }
        };
        let program = parent(file.path());
        tokio::select! {
            _ = run("sh", &program, Stdin::Empty, (Duration::from_secs(60), 10)) => panic!("it ended"),
            () = given_up => {}
        }
        has_ended(&said()).await;
    }

    #[tokio::test]
    async fn what_a_program_leaves_behind_goes_on() {
        let script = "sleep 600 >/dev/null 2>&1 & echo $!";
        let program = Invocation::new("/bin/sh", ["-c", script]);
        let ended = run("sh", &program, Stdin::Empty, (Duration::from_secs(30), 100)).await.unwrap();
        let pid: i32 = ended.stdout.text().trim().parse().unwrap();
        let left = Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(left, Signal::KILL).expect("it is there");
    }
}

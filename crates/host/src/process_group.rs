//! The process group of a started program, for ending the program with everything that it started.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);

/// How long a killed program may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

const POLL: Duration = Duration::from_millis(10);

/// Polling interval. A scan takes some milliseconds on a host with many processes.
const MEMBERS_POLL: Duration = Duration::from_millis(50);

/// Checks for the exit of a program without reaping it.
const PEEK: WaitIdOptions = WaitIdOptions::EXITED.union(WaitIdOptions::NOHANG).union(WaitIdOptions::NOWAIT);

/// The process group of a program. Dropping it kills the group, for instance when the task that runs the program is
/// dropped, unless the program ended by itself.
#[derive(Debug)]
pub struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// Wraps a program that [`spawn`](crate::process::spawn) started. Dropped before the program, which is then killed
    /// and reaped.
    #[must_use]
    pub fn new(child: &Child) -> Self {
        Self(child.id().and_then(|it| Pid::from_raw(it.cast_signed())))
    }

    /// Waits for the program's end. Safe to abandon.
    ///
    /// # Errors
    /// If the system does not report its end.
    pub async fn wait(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let status = child.wait().await?;
        self.ended();
        Ok(status)
    }

    /// Called after the program ended by itself and was reaped: its pid may soon be reused.
    pub(crate) fn ended(&mut self) {
        self.0 = None;
    }

    /// Ends a program at its deadline, unless it ended by itself: TERM to the group, and KILL to the rest after two
    /// seconds.
    pub async fn end(self, child: &mut Child) {
        let Some(leader) = self.leader() else { return };
        let _ = kill_process_group(leader, Signal::TERM);
        let until = Instant::now() + GRACE;
        // The program is reaped after the group was killed, so its pid cannot be reused before.
        while Instant::now() < until && !has_exited(leader) {
            sleep(POLL).await;
        }
        while Instant::now() < until && has_members(leader) {
            sleep(MEMBERS_POLL).await;
        }
        drop(self);
        let _ = timeout(KILL_TIMEOUT, child.wait()).await;
    }

    /// The program's pid, unless it was reaped: then the pid may be reused.
    fn leader(&self) -> Option<Pid> {
        self.0.filter(|it| !matches!(waitid(WaitId::Pid(*it), PEEK), Err(Errno::CHILD)))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.leader() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Whether a program has exited and is not reaped yet.
fn has_exited(program: Pid) -> bool {
    !matches!(waitid(WaitId::Pid(program), PEEK), Ok(None))
}

/// Whether a process of the group has not exited. Systems without `/proc` show none.
fn has_members(group: Pid) -> bool {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let mut lines = pids.filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
    lines.any(|it| is_member(&it, group))
}

/// Checks state and group, fields 3 and 5 of the line in `/proc`.
fn is_member(stat: &str, group: Pid) -> bool {
    let mut fields = stat.rsplit_once(')').map_or("", |it| it.1).split_whitespace();
    let is_alive = !matches!(fields.next(), None | Some("Z" | "X"));
    is_alive && fields.nth(1).and_then(|it| it.parse().ok()) == Some(group.as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Invocation, Stdin, run, spawn};

    /// A program that starts another one, whose pid it writes to the file.
    fn parent(file: &std::path::Path) -> Invocation {
        let script = format!("sleep 600 & echo $! >{}; wait", file.display());
        Invocation::new("/bin/sh", ["-c", script.as_str()])
    }

    async fn has_ended(pid: &str) {
        let pid: u32 = pid.trim().parse().expect("its number");
        let stat = format!("/proc/{pid}/stat");
        let is_there = || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|it| !it.1.starts_with('Z'))
        };
        while is_there() {
            sleep(POLL).await;
        }
    }

    #[tokio::test]
    async fn a_deadline_ends_child_processes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let within = (Duration::from_secs(2), 10);
        assert!(run("sh", &parent(file.path()), Stdin::Empty, within).await.is_err());
        has_ended(&std::fs::read_to_string(file.path()).unwrap()).await;
    }

    #[tokio::test]
    async fn child_processes_get_time_to_end_after_the_program() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ends = format!("trap 'sleep 0.2; echo ended >{}; exit' TERM", file.path().display());
        // The shell prints how its commands end, but its pipe is closed by then.
        let script = format!("({ends}; while :; do sleep 0.05; done) 2>/dev/null & wait");
        let program = Invocation::new("/bin/sh", ["-c", script.as_str()]);
        assert!(run("sh", &program, Stdin::Empty, (Duration::from_secs(2), 10)).await.is_err());
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "ended\n");
    }

    #[tokio::test]
    async fn a_group_whose_program_was_reaped_gets_no_signal() {
        let mut child = spawn(&Invocation::new("/bin/sh", ["-c", "exit 0"]), Stdin::Empty).unwrap();
        let group = ProcessGroup::new(&child);
        assert!(group.leader().is_some());
        child.wait().await.unwrap();
        assert!(group.leader().is_none());
    }

    #[test]
    fn a_member_of_a_group_has_not_exited() {
        let group = Pid::from_raw(7).unwrap();
        assert!(is_member("9 (a) b) S 1 7 8", group));
        assert!(!is_member("9 (a) Z 1 7 8", group) && !is_member("9 (a) S 7 8 7", group) && !is_member("", group));
    }

    #[tokio::test]
    async fn child_processes_end_when_the_program_is_dropped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pid = || std::fs::read_to_string(file.path()).unwrap();
        let waiting = async {
            while !pid().ends_with('\n') {
                sleep(POLL).await;
            }
        };
        let program = parent(file.path());
        tokio::select! {
            _ = run("sh", &program, Stdin::Empty, (Duration::from_secs(60), 10)) => panic!("it ended"),
            () = waiting => {}
        }
        has_ended(&pid()).await;
    }

    #[tokio::test]
    async fn background_processes_of_an_ended_program_continue() {
        let script = "sleep 600 >/dev/null 2>&1 & echo $!";
        let program = Invocation::new("/bin/sh", ["-c", script]);
        let ended = run("sh", &program, Stdin::Empty, (Duration::from_secs(30), 100)).await.unwrap();
        let pid: i32 = ended.stdout.text().trim().parse().unwrap();
        let left = Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(left, Signal::KILL).expect("it is there");
    }
}

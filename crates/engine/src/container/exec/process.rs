//! A running command of this engine, with the interface that drains its output.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use async_trait::async_trait;
use coracle_host::drain::{ProgramPipe, RunningProgram};
use coracle_host::process::feed;
use coracle_types::{Input, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, pidfd_send_signal, waitid};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::{Receiver, Sender};

use super::super::host_error;
use super::plan::StartedExec;
use crate::exec_record::ExecRecord;
use crate::sys::watch_process;

/// A running command, which is killed when this is dropped.
#[derive(Debug)]
pub(super) struct ExecProcess {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    outputs: Option<(Receiver, Receiver)>,
    exit: Option<i32>,
    _record: Option<ExecRecord>,
}

impl ExecProcess {
    /// # Errors
    /// If its pipes cannot be watched. The command was killed then.
    pub(super) fn new(started: StartedExec, input: Option<Input>) -> Result<Self> {
        let pid = started.spawned.pid;
        Self::connect(started, input).inspect_err(|_| end_child(pid))
    }

    fn connect(started: StartedExec, input: Option<Input>) -> Result<Self> {
        let failed = || host_error("cannot connect to the command");
        let stdout = Receiver::from_owned_fd(started.stdout.into()).map_err(failed())?;
        let stderr = Receiver::from_owned_fd(started.stderr.into()).map_err(failed())?;
        if let Some(input) = input {
            tokio::spawn(feed(Sender::from_owned_fd(started.stdin.into()).map_err(failed())?, input));
        }
        let pidfd = watch_process(started.spawned.pidfd).map_err(failed())?;
        let outputs = Some((stdout, stderr));
        Ok(Self { pid: started.spawned.pid, pidfd, outputs, exit: None, _record: started.record })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }
}

#[async_trait]
impl RunningProgram for ExecProcess {
    fn take_outputs(&mut self) -> (Option<ProgramPipe>, Option<ProgramPipe>) {
        let outputs = self.outputs.take();
        outputs.map_or((None, None), |(stdout, stderr)| (Some(Box::new(stdout)), Some(Box::new(stderr))))
    }

    async fn wait_for_exit(&mut self) -> io::Result<i32> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let _ = self.pidfd.readable().await?;
        let status = waitid(WaitId::PidFd(self.pidfd.get_ref().as_fd()), WaitIdOptions::EXITED)?;
        let status = status.ok_or_else(|| io::Error::other("the command's status is missing"))?;
        let exit = status.exit_status().or_else(|| status.terminating_signal().map(|it| 128 + it)).unwrap_or(-1);
        self.exit = Some(exit);
        Ok(exit)
    }

    async fn end(&mut self) {
        if self.exit.is_none() {
            let _ = pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL);
            let _ = self.wait_for_exit().await;
        }
    }
}

impl Drop for ExecProcess {
    fn drop(&mut self) {
        if self.exit.is_none() {
            let _ = pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL);
            self.reap_later();
        }
    }
}

impl ExecProcess {
    /// Reaps the killed process in the background. Until then, the kernel keeps PID 1 of its namespace from ending.
    fn reap_later(&self) {
        let Ok(pidfd) = self.pidfd.get_ref().try_clone() else { return };
        let reap = move || waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).map(drop);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(reap)),
            Err(_) => _ = reap(),
        }
    }
}

/// Kills and reaps a child of this process. Otherwise the child would run on without any limit, and as a zombie keep PID 1
/// of its namespace from ending. Until it is reaped, no other process can get its number.
fn end_child(pid: Pid) {
    // If the signal is refused, waiting would never end.
    if kill_process(pid, Signal::KILL).is_ok() {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
    }
}

#[cfg(test)]
mod tests {
    use coracle_skips::{NEEDS_ROOT, skip};
    use rustix::io::Errno;

    use super::*;
    use crate::sys::{ChildPlan, Namespaces, Program, spawn};

    #[tokio::test]
    async fn a_command_whose_pipes_cannot_be_watched_is_ended() {
        if !rustix::process::geteuid().is_root() {
            return skip(NEEDS_ROOT);
        }
        let text = |it: &str| std::ffi::CString::new(it).unwrap();
        let spawned = spawn(&ChildPlan {
            groups: Vec::new(),
            user_namespace: None,
            namespaces: Namespaces::New { network: false },
            steps: Vec::new(),
            program: Program {
                paths: vec![text("/bin/sleep")],
                argv: vec![text("sleep"), text("1000")],
                env: Vec::new(),
            },
        });
        let spawned = spawned.unwrap();
        let (pid, stdin) = (spawned.pid, std::io::pipe().unwrap().1);
        // No pipes.
        let file = || std::io::PipeReader::from(OwnedFd::from(tempfile::tempfile().unwrap()));
        let started = StartedExec { record: None, spawned, stdin, stdout: file(), stderr: file() };
        assert!(ExecProcess::new(started, None).is_err());
        assert_eq!(waitid(WaitId::Pid(pid), WaitIdOptions::EXITED).map(drop), Err(Errno::CHILD));
    }
}

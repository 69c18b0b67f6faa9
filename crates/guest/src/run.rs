//! PID 1 of a container without a supervisor: starts one program, forwards signals to it, reaps children, and reports
//! its exit.
//!
//! It has one thread and no async runtime to save memory: it runs as long as the container.

mod log;
mod options;

use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{DumpableBehavior, WaitOptions, WaitStatus, set_dumpable_behavior, wait};

use self::log::Log;
pub use self::options::RunOptions;
use crate::os::main_program::{self, Streams};
use crate::os::signal_queue::{SignalQueue, send};

/// Time for killed processes to end; the kernel may delay one that waits for a device.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The exit code if the engine did not let the program start.
const NOT_STARTED: u8 = 125;

/// All processes of the PID namespace except PID 1.
const ALL_PROCESSES: i32 = -1;

/// Runs the program of a container until it exits, then ends the processes that it leaves behind. Returns the program's
/// exit code: 128 plus the number of a signal that killed it, 126 or 127 if it cannot be started.
///
/// # Errors
/// Fails if this process is not PID 1, if the working directory cannot be entered, or if the kernel refuses a call.
pub fn run(options: &RunOptions) -> io::Result<u8> {
    // `end_rest` kills every process of the namespace.
    if std::process::id() != 1 {
        return Err(io::Error::other("`run` is for PID 1 of a container"));
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let signals = SignalQueue::new()?;
    if let Some(workdir) = &options.workdir {
        let failed = |it| io::Error::other(format!("cannot enter `{}`: {it}", workdir.display()));
        rustix::process::chdir(workdir).map_err(failed)?;
    }
    if options.gate
        && let Some(code) = closed_gate(&signals)?
    {
        return Ok(code);
    }
    let (log, outputs) = match options.log_max {
        Some(max) => {
            let file = fcntl_dupfd_cloexec(io::stdout(), 3)?;
            let (log, outputs) = Log::new(file.into(), max)?;
            (Some(log), Some(outputs))
        }
        None => (None, None),
    };
    let streams = Streams { input: options.gate.then(Stdio::null), outputs };
    let program = match main_program::spawn(&options.argv, options.user, streams) {
        Ok(program) => program,
        Err(error) => return Ok(cannot_start(options, &error)),
    };
    let mut run = InitRun { program, signals, log, exit_code: None, has_no_children: false };
    while run.exit_code.is_none() {
        run.wait(None)?;
    }
    run.end_rest(options.grace)?;
    Ok(run.exit_code.unwrap_or(u8::MAX))
}

/// Waits for a byte of standard input. Returns an exit code if none arrives: the engine gave up, or a signal ends the
/// container.
fn closed_gate(signals: &SignalQueue) -> io::Result<Option<u8>> {
    let input = io::stdin();
    loop {
        let mut ready = [PollFd::new(&input, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        if !ready[0].revents().is_empty() {
            let bytes = rustix::io::read(&input, &mut [0])?;
            return Ok((bytes == 0).then_some(NOT_STARTED));
        }
        if let Some(signal @ (libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT)) = signals.next()? {
            return Ok(u8::try_from(128 + signal).ok());
        }
    }
}

struct InitRun {
    program: i32,
    signals: SignalQueue,
    log: Option<Log>,
    /// The exit code of the program.
    exit_code: Option<u8>,
    has_no_children: bool,
}

impl InitRun {
    /// Waits for signals and output, and handles them.
    fn wait(&mut self, within: Option<Duration>) -> io::Result<()> {
        let within = within.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut ready = vec![PollFd::new(&self.signals, PollFlags::IN)];
        ready.extend(self.log.as_ref().map(|it| PollFd::from_borrowed_fd(it.as_fd(), PollFlags::IN)));
        match poll(&mut ready, within.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            polled => polled?,
        };
        let has_output = ready.get(1).is_some_and(|it| !it.revents().is_empty());
        if has_output && self.log.as_mut().is_some_and(|it| !it.copy()) {
            self.log = None;
        }
        while let Some(signal) = self.signals.next()? {
            match signal {
                libc::SIGCHLD => self.reap(),
                // The kernel sends these because of this process's own writes and terminal, so they are not forwarded.
                libc::SIGPIPE | libc::SIGTTIN | libc::SIGTTOU => {}
                _ if self.exit_code.is_none() => send(self.program, signal),
                _ => {}
            }
        }
        Ok(())
    }

    /// One SIGCHLD may report several exits, so this reaps until none is left.
    fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == self.program => {
                    self.exit_code = Some(code(status));
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(errno) => {
                    self.has_no_children = errno == rustix::io::Errno::CHILD;
                    return;
                }
            }
        }
    }

    /// Sends TERM, and after `grace` KILL, to the processes that the program left behind. Then copies the rest of the
    /// output.
    fn end_rest(&mut self, grace: Duration) -> io::Result<()> {
        for (signal, within) in [(libc::SIGTERM, grace), (libc::SIGKILL, KILL_TIMEOUT)] {
            let deadline = Instant::now() + within;
            self.reap();
            if !self.has_no_children {
                send(ALL_PROCESSES, signal);
                send(ALL_PROCESSES, libc::SIGCONT);
            }
            while !self.has_no_children && Instant::now() < deadline {
                self.wait(Some(deadline.saturating_duration_since(Instant::now())))?;
            }
        }
        while self.log.as_mut().is_some_and(|it| it.copy() && it.has_more()) {}
        Ok(())
    }
}

/// The exit code, or 128 plus the number of a signal, as in shells.
fn code(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|it| it + 128);
    signal.or(status.exit_status()).and_then(|it| u8::try_from(it).ok()).unwrap_or(u8::MAX)
}

/// Reports why the program cannot start. The exit codes are those of shells, which engines use too.
#[expect(clippy::print_stderr, reason = "the container has no other place for this message")]
fn cannot_start(options: &RunOptions, error: &io::Error) -> u8 {
    eprintln!("coracle-guest: cannot run `{}`: {error}", options.argv[0].display());
    if error.kind() == ErrorKind::NotFound { 127 } else { 126 }
}

//! PID 1 of a container without a supervisor: starts one program, forwards signals to it, reaps, and reports its end.
//!
//! One thread and no runtime: it rests beside a program for as long as the container runs.

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

/// For killed processes; the kernel may hold one that waits for a device.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The exit code where the engine did not let the program start.
const NOT_STARTED: u8 = 125;

/// All processes of the namespace but PID 1.
const EVERYONE: i32 = -1;

/// Runs the program of a container to its end and ends what it left behind. The exit code: the program's, 128 and more
/// for a signal, 126 or 127 when it cannot be started.
///
/// # Errors
/// This process is not PID 1; the working directory cannot be entered; the kernel's.
pub fn run(options: &RunOptions) -> io::Result<u8> {
    // The end of a container kills everyone in its namespace.
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
    let program = match main_program::spawn(&options.words, options.user, streams) {
        Ok(program) => program,
        Err(error) => return Ok(cannot_start(options, &error)),
    };
    let mut run = InitRun { program, signals, log, left: None, alone: false };
    while run.left.is_none() {
        run.wait(None)?;
    }
    run.end_rest(options.grace)?;
    Ok(run.left.unwrap_or(u8::MAX))
}

/// Waits for a byte of standard input. The exit code where none comes: the engine gave up, or a signal ends it all.
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
    left: Option<u8>,
    /// There are no children.
    alone: bool,
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
                // Sent for our own writes and terminal, and not for the program.
                libc::SIGPIPE | libc::SIGTTIN | libc::SIGTTOU => {}
                _ if self.left.is_none() => send(self.program, signal),
                _ => {}
            }
        }
        Ok(())
    }

    /// One signal may stand for many exits.
    fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == self.program => self.left = Some(code(status)),
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(errno) => {
                    self.alone = errno == rustix::io::Errno::CHILD;
                    return;
                }
            }
        }
    }

    /// TERM, and after the grace KILL, for what the program started and left. Then the rest of the output.
    fn end_rest(&mut self, grace: Duration) -> io::Result<()> {
        for (signal, within) in [(libc::SIGTERM, grace), (libc::SIGKILL, KILL_TIMEOUT)] {
            let deadline = Instant::now() + within;
            self.reap();
            if !self.alone {
                send(EVERYONE, signal);
                send(EVERYONE, libc::SIGCONT);
            }
            while !self.alone && Instant::now() < deadline {
                self.wait(Some(deadline.saturating_duration_since(Instant::now())))?;
            }
        }
        while self.log.as_mut().is_some_and(|it| it.copy() && it.has_more()) {}
        Ok(())
    }
}

/// 128 and the number for a signal, as shells do.
fn code(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|it| it + 128);
    signal.or(status.exit_status()).and_then(|it| u8::try_from(it).ok()).unwrap_or(u8::MAX)
}

/// The codes of a shell, which engines use too.
#[expect(clippy::print_stderr, reason = "the container has no other place for it")]
fn cannot_start(options: &RunOptions, error: &io::Error) -> u8 {
    eprintln!("coracle-guest: cannot run `{}`: {error}", options.words[0].display());
    if error.kind() == ErrorKind::NotFound { 127 } else { 126 }
}

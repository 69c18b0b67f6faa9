//! The channel that only host and worker have.

use std::fs::File;
use std::os::fd::AsFd;

use coracle_types::Secret;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::stdio::{dup2_stdin, dup2_stdout, stderr, stdin, stdout};

/// Above 0, 1 and 2, and above what the guest gives a program.
const FIRST_FREE: i32 = 10;

/// Channel and token, inaccessible to other processes.
#[derive(Debug)]
pub struct Private {
    /// Requests of the host.
    pub input: File,
    /// Messages to the host.
    pub output: File,
    /// The `llm` token, where there is one.
    pub token: Option<Secret>,
}

/// Takes the channel and the token for this process alone. Must be called first: from then on no other process reads
/// its memory or finds its descriptors in `/proc`, all printed text goes to the log, and nothing is read by accident.
///
/// # Errors
/// The kernel's.
pub fn take() -> std::io::Result<Private> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let token = coracle_guest::inherit::secret()?.map(Secret::new);
    let output = fcntl_dupfd_cloexec(stdout(), FIRST_FREE)?;
    let input = fcntl_dupfd_cloexec(stdin(), FIRST_FREE)?;
    dup2_stdout(stderr())?;
    let nothing = open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(nothing.as_fd())?;
    Ok(Private { input: input.into(), output: output.into(), token })
}

//! The private channel between host and worker.

use std::fs::File;
use std::os::fd::AsFd;

use coracle_types::Secret;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::stdio::{dup2_stdin, dup2_stdout, stderr, stdin, stdout};

/// Above 0, 1 and 2, and above the descriptors that the guest passes to a program.
const FIRST_FREE: i32 = 10;

/// The channel and the token, inaccessible to other processes.
#[derive(Debug)]
pub struct Private {
    /// Requests from the host.
    pub input: File,
    /// Messages to the host.
    pub output: File,
    /// The `llm` token, if there is one.
    pub token: Option<Secret>,
}

/// Makes the channel and the token private to this process. Must be called first: afterwards no other process can read
/// its memory or open its descriptors in `/proc`, printed text is sent to the log, and stdin is empty.
///
/// # Errors
/// Errors of the kernel.
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

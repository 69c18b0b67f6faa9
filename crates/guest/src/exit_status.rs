//! Writes the exit code of PID 1 to a file where the engine finds it: the engine has no process that waits for a
//! container.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use crate::os::inherited_fd;

/// The code of a program that panicked.
const PANICKED: u8 = 101;

/// Runs the work of PID 1, and writes its exit code in decimal to a descriptor that the engine left open, also after a
/// panic. Must be called before any file is opened.
pub fn report(descriptor: Option<i32>, work: impl FnOnce() -> u8) -> ExitCode {
    // Without the descriptor the code is lost, but the container can still do its work.
    let file = descriptor.and_then(|it| inherited_fd::take(it).ok());
    let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
    if let Some(mut file) = file {
        // An error cannot be reported anywhere.
        let _ = file.write_all(code.to_string().as_bytes());
    }
    code.into()
}

//! Tests that cannot run on this machine say why, in a file that `cargo xtask test` counts.
//!
//! A test that returns early looks like one that passed. So it calls [`skip`] first: a line `REASON<TAB>TEST` goes to
//! `scenarios/skipped.txt` in the target directory. `cargo xtask test` prints how many tests each reason kept from
//! running, and in CI a reason that its list does not allow is a failure.
//!
//! **Invariant:** a dependency of tests alone, and itself without any.

use std::fs::{File, OpenOptions, create_dir_all};
use std::io::Write;

/// The test acts as other users, mounts, or gives files away.
pub const NEEDS_ROOT: &str = "needs root";

/// The test is about a user who is not root.
pub const NEEDS_USER: &str = "needs a user who is not root";

/// The test is about a container engine, and `CORACLE_ENGINES` names none.
pub const NEEDS_ENGINE: &str = "needs a container engine";

/// The test is about rules that other programs make with `iptables`.
pub const NEEDS_IPTABLES: &str = "needs iptables";

/// The test kills processes at chosen system calls.
pub const NEEDS_STRACE: &str = "needs strace";

/// The test is about an engine behind a server of `ssh`.
pub const NEEDS_SSHD: &str = "needs root and openssh-server";

/// The test takes long, and `cargo xtask test` runs a part of those.
pub const NOT_IN_SUBSET: &str = "takes long, and runs with --all-engines";

/// The test is about a page in a browser.
pub const NEEDS_CHROMIUM: &str = "needs chromium";

/// The test is about a client of `ssh`.
pub const NEEDS_SSH: &str = "needs openssh-client";

/// The test is about a directory that is mounted by `sshfs`.
pub const NEEDS_SSHFS: &str = "needs sshfs and /dev/fuse";

/// Notes that the running test does not try what it is about, and why.
///
/// # Panics
///
/// When the note cannot be written: a skip that is not counted is a failure.
#[expect(clippy::print_stderr, reason = "the runner shows it beside the test")]
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
    let line = format!("{reason}\t{}\n", test_name());
    // One write for one line: other tests append to the same file.
    notes("skipped.txt").write_all(line.as_bytes()).expect("the note of a skipped test is written");
}

/// A file for notes of tests, ready for another line.
///
/// # Panics
///
/// When it cannot be opened.
#[must_use]
pub fn notes(name: &str) -> File {
    // target/<profile>/deps/<this program>
    let program = std::env::current_exe().expect("a test is a program");
    let dir = program.ancestors().nth(3).expect("cargo builds it").join("scenarios");
    create_dir_all(&dir).expect("the target directory can be written");
    let file = OpenOptions::new().create(true).append(true).open(dir.join(name));
    file.expect("the notes of tests can be written")
}

/// The test that runs: cargo-nextest starts one process for each and names it; else its thread has its name.
#[must_use]
pub fn test_name() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let named = words.iter().position(|it| it == "--exact").and_then(|_| words.iter().find(|it| !it.starts_with('-')));
    named.cloned().or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_its_test() {
        assert!(test_name().ends_with("a_note_names_its_test"), "{}", test_name());
    }
}

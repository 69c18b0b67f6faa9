//! Tests that cannot run on this machine record the reason in a file that `cargo xtask test` counts, and find what they need.
//!
//! A test that returns early looks like a passed one. So it calls [`skip`] first, which appends a line
//! `REASON<TAB>TEST` to `scenarios/skipped.txt` in the target directory. `cargo xtask test` prints the number of skipped
//! tests for each reason; in CI a reason that its list does not allow is a failure.
//!
//! **Invariant:** only tests depend on this crate, and it has no dependencies.

use std::fs::{File, OpenOptions, create_dir_all};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The test acts as other users, mounts, or gives files away.
pub const NEEDS_ROOT: &str = "needs root";

/// The test needs a user who is not root.
pub const NEEDS_USER: &str = "needs a user who is not root";

/// The test needs a container engine, and `CORACLE_ENGINES` names none.
pub const NEEDS_ENGINE: &str = "needs a container engine";

/// The test needs rules created by other programs with `iptables`.
pub const NEEDS_IPTABLES: &str = "needs iptables";

/// The test kills processes at chosen system calls.
pub const NEEDS_STRACE: &str = "needs strace";

/// The test needs an engine on an `ssh` server.
pub const NEEDS_SSHD: &str = "needs root and openssh-server";

/// The test needs an engine that this run does not have.
pub const NEEDS_OTHER_ENGINE: &str = "needs another engine than the fake and the embedded one";

/// The test needs a page in a browser.
pub const NEEDS_CHROMIUM: &str = "needs chromium";

/// The test needs an `ssh` client.
pub const NEEDS_SSH: &str = "needs openssh-client";

/// The test needs a directory mounted by `sshfs`.
pub const NEEDS_SSHFS: &str = "needs sshfs and /dev/fuse";

/// The test downloads packages: `cargo xtask test` alone does not let it.
pub const NEEDS_DOWNLOADS: &str = "downloads packages";

/// Whether the running test may download packages. Where it may not, that is recorded.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a test has no other way to know")]
pub fn may_download() -> bool {
    let may = std::env::var("CORACLE_TEST_DOWNLOADS").as_deref() != Ok("never");
    if !may {
        skip(NEEDS_DOWNLOADS);
    }
    may
}

/// Whether the running test is root's. Where it is not, that is recorded.
#[must_use]
pub fn has_root() -> bool {
    let is_root = uid() == 0;
    if !is_root {
        skip(NEEDS_ROOT);
    }
    is_root
}

/// Records that the running test is skipped, and why.
///
/// # Panics
///
/// When the record cannot be written: an uncounted skip is a failure.
#[expect(clippy::print_stderr, reason = "the runner shows it beside the test")]
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
    let line = format!("{reason}\t{}\n", test_name());
    // One write per line, because other tests append to the same file.
    notes("skipped.txt").write_all(line.as_bytes()).expect("the note of a skipped test is written");
}

/// A static busybox, the root file system of most tests' containers: the machine's own, or the one that `cargo xtask test` puts
/// into the target directory.
///
/// # Panics
///
/// When there is neither.
#[must_use]
pub fn busybox() -> PathBuf {
    let candidates = [target().join("tools/busybox"), PathBuf::from("/bin/busybox")];
    let found = candidates.into_iter().find(|it| it.is_file());
    found.expect("tests need a static busybox: the package busybox-static, or `cargo xtask test`")
}

/// A path that all tests of this account share, in the temporary directory of all accounts.
#[must_use]
pub fn of_account(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("coracle-test-{name}-of-{}", uid()))
}

/// The account of this process.
fn uid() -> u32 {
    let of_process = std::fs::metadata("/proc/self").ok();
    // Without such files, as on a Mac, the home is the account's own.
    let of_home = || std::env::home_dir().and_then(|it| std::fs::metadata(it).ok());
    of_process.or_else(of_home).expect("a process, or a home").uid()
}

/// The target directory: `<target>/<profile>/deps/<this program>`.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a test is a program");
    program.ancestors().nth(3).expect("cargo builds it").to_owned()
}

/// Opens a file for records of tests, in append mode.
///
/// # Panics
///
/// When it cannot be opened.
#[must_use]
pub fn notes(name: &str) -> File {
    let dir = target().join("scenarios");
    create_dir_all(&dir).expect("the target directory can be written");
    let file = OpenOptions::new().create(true).append(true).open(dir.join(name));
    file.expect("the notes of tests can be written")
}

/// The running test: cargo-nextest starts one process for each and sets its name; otherwise the thread has its name.
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

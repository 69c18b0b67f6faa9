//! A person who is not root: Podman and the embedded engine without root are other engines, and every process of a test
//! has to be that person's.
//!
//! `cargo xtask engines up podman-rootless` makes the account. A test of root's runs itself once more as that person, on
//! that engine only: tests are processes of their own, and know nothing of it. For a person who is not root already,
//! it is the same engine as `podman`.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::variable;

pub(super) const ROOTLESS: &str = "podman-rootless";

pub(super) const EMBEDDED_ROOTLESS: &str = "embedded-rootless";

/// Engines that the unprivileged user runs.
pub(super) const OF_PERSON: [&str; 2] = [ROOTLESS, EMBEDDED_ROOTLESS];

/// The account, as `xtask` names it.
const PERSON: &str = "coracle-test";

/// Set for the second run.
const SECOND: &str = "CORACLE_TESTS_AS_PERSON";

pub(crate) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// The user of programs on the fake: it has no others.
pub(crate) fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Whether this is the second run. The first one, as root, tests the fake.
pub(super) fn is_second_run() -> bool {
    variable(SECOND).is_some()
}

/// A directory of this account that outlasts a test.
pub(crate) fn lasting_dir() -> PathBuf {
    if is_second_run() { std::env::temp_dir() } else { env!("CARGO_TARGET_TMPDIR").into() }
}

/// Whether no other engine is requested.
pub(super) fn is_alone() -> bool {
    variable("CORACLE_ENGINES").is_some_and(|it| it.split(',').all(|it| OF_PERSON.contains(&it.trim())))
}

/// Runs this test again as the unprivileged user, on that engine. Runs it only once per test, for any number of checks.
pub(super) fn runs_this_test(engine: &'static str) {
    static DONE: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(engine) {
        let person = Person::find().unwrap_or_else(|| {
            panic!("CORACLE_ENGINES names {engine}: `cargo xtask engines up {engine}` makes its account {PERSON}")
        });
        // The unprivileged user may append to it, but not create it.
        for file in ["ran.txt", "engines.txt", "skipped.txt"] {
            std::os::unix::fs::fchown(coracle_skips::notes(file), Some(person.uid), None).unwrap();
        }
        let status = person.this_test(engine).status().expect("the directory of this program is open to others");
        assert!(status.success(), "the test failed for {PERSON} on {engine}: {status}");
    }
}

struct Person {
    uid: u32,
    gid: u32,
    home: PathBuf,
}

impl Person {
    fn find() -> Option<Self> {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
        let line = passwd.lines().find_map(|it| it.strip_prefix(PERSON)?.strip_prefix(':'))?;
        let fields: Vec<_> = line.split(':').collect();
        Some(Self { uid: fields[1].parse().ok()?, gid: fields[2].parse().ok()?, home: fields[4].into() })
    }

    /// This program with its own arguments, which name the test.
    #[expect(clippy::disallowed_methods, reason = "a test that runs itself")]
    fn this_test(&self, engine: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(std::env::args_os().skip(1)).uid(self.uid).gid(self.gid).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env(SECOND, "1");
        for name in ["CORACLE_TEST_RUN", "CORACLE_RACES"] {
            command.env(name, variable(name).unwrap_or_default());
        }
        command.env("CORACLE_ENGINES", engine).env("HOME", &self.home).env("TMPDIR", self.home.join("tmp"));
        command.env("XDG_RUNTIME_DIR", format!("/run/user/{}", self.uid)).current_dir(&self.home);
        command
    }
}

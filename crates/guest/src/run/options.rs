//! The command line of `coracle-guest run`.

use std::ffi::OsString;
use std::time::Duration;

use crate::os::main_program::RunUser;

/// Between TERM and KILL for what the program leaves behind.
const GRACE: Duration = Duration::from_secs(2);

/// What to run, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    pub(super) exit_fd: Option<i32>,
    /// Standard output is a log file, of which so many bytes are kept.
    pub(super) log_max: Option<u64>,
    /// The program waits for a byte of standard input, which it then does not get.
    pub(super) gate: bool,
    pub(super) grace: Duration,
    pub(super) user: Option<RunUser>,
    pub(super) workdir: Option<OsString>,
    /// The program and its words, at least one.
    pub(super) words: Vec<OsString>,
}

impl RunOptions {
    /// Parses the words after `run`; `None` when they are invalid.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut words = words.into_iter();
        let mut it = Self {
            exit_fd: None,
            log_max: None,
            gate: false,
            grace: GRACE,
            user: None,
            workdir: None,
            words: Vec::new(),
        };
        loop {
            let word = words.next()?;
            match word.to_str()?.split_once('=') {
                None if word == "--" => break,
                None if word == "--gate" => it.gate = true,
                Some(("--exit-fd", value)) => it.exit_fd = Some(value.parse().ok()?),
                Some(("--log-max", value)) => it.log_max = Some(value.parse().ok()?),
                Some(("--grace", value)) => it.grace = Duration::from_secs(value.parse().ok()?),
                Some(("--user", value)) => it.user = Some(user(value)?),
                Some(("--workdir", value)) => it.workdir = Some(value.into()),
                _ => return None,
            }
        }
        it.words = words.collect();
        (!it.words.is_empty()).then_some(it)
    }

    /// Where the exit code goes.
    #[must_use]
    pub fn exit_fd(&self) -> Option<i32> {
        self.exit_fd
    }
}

/// `UID:GID`. The highest number means "no change" to the kernel, so the program would keep PID 1's user.
fn user(value: &str) -> Option<RunUser> {
    let (uid, gid) = value.split_once(':')?;
    let number = |it: &str| it.parse().ok().filter(|it| *it != u32::MAX);
    Some(RunUser { uid: number(uid)?, gid: number(gid)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Option<RunOptions> {
        RunOptions::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn options_end_at_two_dashes() {
        let it = parse(&[
            "--gate",
            "--user=1:2",
            "--exit-fd=5",
            "--grace=0",
            "--workdir=/a=b",
            "--",
            "sh",
            "--",
            "--user=3:3",
        ]);
        let it = it.unwrap();
        assert!(it.gate);
        assert_eq!((it.user, it.exit_fd), (Some(RunUser { uid: 1, gid: 2 }), Some(5)));
        assert_eq!((it.grace, it.workdir), (Duration::ZERO, Some("/a=b".into())));
        assert_eq!(it.words, ["sh", "--", "--user=3:3"]);
    }

    #[test]
    fn other_words_are_refused() {
        let user = format!("--user=0:{}", u32::MAX);
        for words in
            [&["sh"][..], &["--"], &["--user=root", "--", "sh"], &["--exit-fd", "--", "sh"], &[&user, "--", "sh"]]
        {
            assert_eq!(parse(words), None, "{words:?}");
        }
    }
}

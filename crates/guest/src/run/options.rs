//! The command line of `coracle-guest run`.

use std::ffi::OsString;
use std::time::Duration;

use crate::os::main_program::RunUser;

/// The default time between TERM and KILL for processes that the program leaves behind.
const GRACE: Duration = Duration::from_secs(2);

/// What to run, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    pub(super) exit_fd: Option<i32>,
    /// How many bytes are retained of standard output, if it is a log file.
    pub(super) log_max: Option<u64>,
    /// Whether to start the program only after a byte arrives on standard input, which this process reads.
    pub(super) gate: bool,
    pub(super) grace: Duration,
    pub(super) user: Option<RunUser>,
    pub(super) workdir: Option<OsString>,
    /// The program and its arguments, at least one.
    pub(super) argv: Vec<OsString>,
}

impl RunOptions {
    /// Parses the arguments after `run`; `None` if they are invalid.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut args = args.into_iter();
        let mut options = Self {
            exit_fd: None,
            log_max: None,
            gate: false,
            grace: GRACE,
            user: None,
            workdir: None,
            argv: Vec::new(),
        };
        loop {
            let arg = args.next()?;
            match arg.to_str()?.split_once('=') {
                None if arg == "--" => break,
                None if arg == "--gate" => options.gate = true,
                Some(("--exit-fd", value)) => options.exit_fd = Some(value.parse().ok()?),
                Some(("--log-max", value)) => options.log_max = Some(value.parse().ok()?),
                Some(("--grace", value)) => options.grace = Duration::from_secs(value.parse().ok()?),
                Some(("--user", value)) => options.user = Some(user(value)?),
                Some(("--workdir", value)) => options.workdir = Some(value.into()),
                _ => return None,
            }
        }
        options.argv = args.collect();
        (!options.argv.is_empty()).then_some(options)
    }

    /// The descriptor for the exit code.
    #[must_use]
    pub fn exit_fd(&self) -> Option<i32> {
        self.exit_fd
    }
}

/// Parses `UID:GID`. Refuses the highest number, which means "no change" to the kernel: the program would retain PID
/// 1's user.
fn user(value: &str) -> Option<RunUser> {
    let (uid, gid) = value.split_once(':')?;
    let number = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX);
    Some(RunUser { uid: number(uid)?, gid: number(gid)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Option<RunOptions> {
        RunOptions::parse(args.iter().map(OsString::from))
    }

    #[test]
    fn options_end_at_two_dashes() {
        let options = parse(&[
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
        let options = options.unwrap();
        assert!(options.gate);
        assert_eq!((options.user, options.exit_fd), (Some(RunUser { uid: 1, gid: 2 }), Some(5)));
        assert_eq!((options.grace, options.workdir), (Duration::ZERO, Some("/a=b".into())));
        assert_eq!(options.argv, ["sh", "--", "--user=3:3"]);
    }

    #[test]
    fn invalid_arguments_are_refused() {
        let user = format!("--user=0:{}", u32::MAX);
        for args in
            [&["sh"][..], &["--"], &["--user=root", "--", "sh"], &["--exit-fd", "--", "sh"], &[&user, "--", "sh"]]
        {
            assert_eq!(parse(args), None, "{args:?}");
        }
    }
}

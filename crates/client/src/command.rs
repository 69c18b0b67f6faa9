//! A command in the guest's terms.

use std::fmt;
use std::time::Duration;

use coracle_protocol::{
    self as protocol, CHUNK, ErrorCode, Lifetime, MAX_COMMAND, MAX_SECRET, OutputMode, RpcError, UserSpec,
};
use zeroize::Zeroizing;

use coracle_types::{AtLimit, Command, Error, Exec, Ids, JobId, Result};

/// A command, ready to be sent.
pub(crate) struct EncodedExec {
    pub(crate) job: JobId,
    pub(crate) head: protocol::ExecRequest,
    /// Words, then environment, each ended by a NUL, then the secret.
    bytes: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for EncodedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order").field("job", &self.job).field("head", &self.head).finish_non_exhaustive()
    }
}

impl EncodedExec {
    /// A command that somebody waits for.
    ///
    /// # Errors
    /// [`Error::Refused`] for what no kernel takes.
    pub(crate) fn foreground(exec: &Exec, stdin: bool) -> Result<Self> {
        let life = if exec.at_limit == AtLimit::Keep { Lifetime::Keep } else { Lifetime::Foreground };
        let ends = OutputMode::Ends { bytes: end_bytes(exec.keep_bytes) as u64 };
        Self::new(exec, stdin, life, if exec.live.is_some() { OutputMode::All } else { ends })
    }

    /// A command that outlives the call; refused when so many run.
    ///
    /// # Errors
    /// [`Error::Refused`] for what no kernel takes.
    pub(crate) fn job(exec: &Exec, stdin: bool, most: Option<u32>) -> Result<Self> {
        let mut order = Self::new(exec, stdin, Lifetime::Job, OutputMode::Nothing)?;
        order.head.most = most;
        Ok(order)
    }

    fn new(exec: &Exec, stdin: bool, life: Lifetime, show: OutputMode) -> Result<Self> {
        let (mut bytes, words, shell) = payload(exec)?;
        let before = bytes.len();
        bytes.extend_from_slice(secret(exec, shell)?);
        let length = |bytes: usize| u32::try_from(bytes).expect("a command is at most 8 MiB");
        let job = exec.job.clone().unwrap_or_else(JobId::random);
        let head = protocol::ExecRequest {
            job: job.to_string(),
            shell,
            words: length(words),
            env: length(before - words),
            secret: length(bytes.len() - before),
            bare: exec.bare,
            files: exec.files.clone(),
            inside: false,
            user: who(exec.user),
            cwd: exec.workdir.to_string(),
            stdin,
            terminal: None,
            limits: protocol::ExecTimeouts {
                total_ms: exec.limits.total.map(at_least_one_ms),
                silence_ms: exec.limits.silence.map(at_least_one_ms),
                grace_ms: ms(exec.limits.grace),
            },
            life,
            show,
            cut: exec.passes_on.unwrap_or(exec.keep_bytes) as u64,
            most: None,
        };
        Ok(Self { job, head, bytes })
    }

    /// What goes with the first frame, and what with each that follows.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(CHUNK)
    }
}

/// Bytes kept of each end of a stream. The guest knows one number for both ends, so an odd limit is rounded up.
pub(crate) fn end_bytes(keep_bytes: usize) -> usize {
    keep_bytes.div_ceil(2).min(usize::MAX / 2)
}

/// The payload, how much of it is words, and whether they are a script.
fn payload(exec: &Exec) -> Result<(Zeroizing<Vec<u8>>, usize, bool)> {
    let (words, shell) = match &exec.command {
        Command::Argv(words) => (words.as_slice(), false),
        Command::Shell(script) => (std::slice::from_ref(script), true),
    };
    if words.is_empty() {
        return Err(invalid("a command without a word"));
    }
    if exec.env.keys().any(|name| name.is_empty() || name.contains('=')) {
        return Err(invalid("a variable without a name, or with `=` in its name"));
    }
    let variables = exec.env.iter().map(|(name, value)| format!("{name}={value}"));
    let total = words.iter().map(|it| it.len() + 1).chain(variables.clone().map(|it| it.len() + 1)).sum::<usize>();
    if total > MAX_COMMAND {
        let message = format!("words and environment are longer than {} MiB", MAX_COMMAND >> 20);
        return Err(Error::Refused(RpcError::new(ErrorCode::TooLong, message)));
    }
    let room = total + exec.secret.as_ref().map_or(0, |it| it.reveal().len());
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    words.iter().for_each(|it| end_with_nul(&mut bytes, it));
    let length = bytes.len();
    variables.for_each(|it| end_with_nul(&mut bytes, &it));
    if bytes.iter().filter(|it| **it == 0).count() != words.len() + exec.env.len() {
        return Err(invalid("a NUL in a word or in the environment"));
    }
    Ok((bytes, length, shell))
}

/// What only the program is to read.
fn secret(exec: &Exec, shell: bool) -> Result<&[u8]> {
    let secret = exec.secret.as_ref().map_or(&[][..], |it| it.reveal());
    if shell && exec.secret.is_some() {
        return Err(invalid("a script is given no secret"));
    }
    if secret.len() > MAX_SECRET {
        let message = format!("a secret is longer than {} KiB", MAX_SECRET >> 10);
        return Err(Error::Refused(RpcError::new(ErrorCode::TooLong, message)));
    }
    Ok(secret)
}

fn end_with_nul(bytes: &mut Vec<u8>, word: &str) {
    bytes.extend_from_slice(word.as_bytes());
    bytes.push(0);
}

fn invalid(message: &str) -> Error {
    Error::Refused(RpcError::new(ErrorCode::Invalid, message))
}

/// A user by its numbers.
pub(crate) fn who(user: Ids) -> UserSpec {
    UserSpec::Ids { uid: user.uid, gid: Some(user.gid) }
}

/// Whole milliseconds.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A limit of less than a millisecond is one all the same.
fn at_least_one_ms(time: Duration) -> u64 {
    ms(time).max(1)
}

#[cfg(test)]
mod tests {
    use coracle_types::ContainerPath;
    use proptest::prelude::*;

    use super::*;

    fn exec(command: Command, env: &[(String, String)]) -> Exec {
        let mut exec = Exec::new(command, Ids { uid: 7, gid: 8 }, ContainerPath::root());
        exec.env = env.iter().cloned().collect();
        exec
    }

    fn refusal(exec: &Exec) -> Option<ErrorCode> {
        match EncodedExec::foreground(exec, false) {
            Err(Error::Refused(fault)) => Some(fault.code),
            _ => None,
        }
    }

    #[test]
    fn what_no_kernel_takes_is_refused_before_it_is_sent() {
        let argv = |words: &[&str]| Command::Argv(words.iter().map(|it| (*it).to_owned()).collect());
        let variable = |name: &str, value: &str| [(name.to_owned(), value.to_owned())];
        for (command, env, code) in [
            (argv(&["a\0b"]), &variable("A", "1"), ErrorCode::Invalid),
            (argv(&["a"]), &variable("A", "1\0"), ErrorCode::Invalid),
            (argv(&["a"]), &variable("A=B", "1"), ErrorCode::Invalid),
            (argv(&["a"]), &variable("", "1"), ErrorCode::Invalid),
            (argv(&[]), &variable("A", "1"), ErrorCode::Invalid),
            (Command::Shell("x".repeat(MAX_COMMAND)), &variable("A", "1"), ErrorCode::TooLong),
        ] {
            assert_eq!(refusal(&exec(command, env)), Some(code));
        }
        assert_eq!(refusal(&exec(Command::Shell("x".repeat(MAX_COMMAND - 1)), &[])), None);
    }

    proptest! {
        #[test]
        fn words_and_variables_come_apart_as_they_were_put_together(
            words in proptest::collection::vec("[^\0]{0,9}", 1..5),
            env in proptest::collection::btree_map("[A-Z]{1,3}", "[^\0]{0,9}", 0..4),
        ) {
            let env: Vec<_> = env.into_iter().collect();
            let order = EncodedExec::foreground(&exec(Command::Argv(words.clone()), &env), false).unwrap();
            let bytes = order.pieces().collect::<Vec<_>>().concat();
            let (ours, theirs) = bytes.split_at(order.head.words as usize);
            prop_assert_eq!(theirs.len(), order.head.env as usize);
            let parts = |bytes: &[u8]| -> Vec<String> {
                bytes.split_inclusive(|it| *it == 0).map(|it| String::from_utf8(it[..it.len() - 1].to_vec()).unwrap()).collect()
            };
            prop_assert_eq!(parts(ours), words);
            prop_assert_eq!(parts(theirs), env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>());
        }
    }
}

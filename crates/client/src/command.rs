//! Encodes commands for the guest.

use std::fmt;
use std::time::Duration;

use coracle_protocol::body::Bytes;
use coracle_protocol::call::Call as _;
use coracle_protocol::{
    self as protocol, ErrorCode, Lifetime, MAX_COMMAND, MAX_SECRET, OutputMode, RpcError, UserSpec,
};
use zeroize::{Zeroize as _, Zeroizing};

use coracle_types::{AtLimit, Command, Error, Exec, Ids, JobId, Result};

use crate::call::{encoded, too_long};
use crate::channels::ReplyShape;

/// A command, ready to be sent.
pub(crate) struct EncodedExec {
    pub(crate) job: JobId,
    pub(crate) life: Lifetime,
    pub(crate) show: OutputMode,
    pub(crate) stdin: bool,
    pub(crate) inline_limit: u64,
    /// The name of the call whose request is `body`.
    pub(crate) call: &'static str,
    pub(crate) body: Zeroizing<Vec<u8>>,
    pub(crate) shape: ReplyShape,
}

impl fmt::Debug for EncodedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedExec").field("job", &self.job).field("life", &self.life).finish_non_exhaustive()
    }
}

impl EncodedExec {
    /// Encodes a command that a caller waits for.
    ///
    /// # Errors
    /// [`Error::Refused`] if it exceeds a limit of the kernel.
    pub(crate) fn foreground(exec: &Exec, stdin: bool) -> Result<Self> {
        let life = if exec.at_limit == AtLimit::Keep { Lifetime::Keep } else { Lifetime::Foreground };
        let ends = OutputMode::Ends { bytes: end_bytes(exec.keep_bytes) as u64 };
        let show = if exec.live.is_some() { OutputMode::All } else { ends };
        Self::new(protocol::ExecRequest { life, show, stdin, ..request(exec)? })
    }

    /// Encodes a command that outlives the call; the guest refuses it if `max_running` jobs run.
    ///
    /// # Errors
    /// [`Error::Refused`] if it exceeds a limit of the kernel.
    pub(crate) fn job(exec: &Exec, stdin: bool, max_running: Option<u32>) -> Result<Self> {
        Self::new(protocol::ExecRequest { stdin, max_running, ..request(exec)? })
    }

    fn new(mut request: protocol::ExecRequest) -> Result<Self> {
        let protocol::ExecRequest { life, show, stdin, inline_limit, .. } = request;
        let (job, body, shape) = (JobId::parse(&request.job), encoded(&request), ReplyShape::new(&request));
        request.argv.iter_mut().chain(&mut request.env).chain(&mut request.secret).for_each(|it| it.0.zeroize());
        let job = job.map_err(|_| invalid("a job id must have 8 hex digits"))?;
        let call = protocol::ExecRequest::NAME;
        Ok(Self { job, life, show, stdin, inline_limit, call, body: body?, shape })
    }
}

/// The request for a job without input, whose output is not sent.
fn request(exec: &Exec) -> Result<protocol::ExecRequest> {
    let (argv, shell) = arguments(exec)?;
    let job = exec.job.clone().unwrap_or_else(JobId::random);
    Ok(protocol::ExecRequest {
        job: job.to_string(),
        shell,
        argv,
        env: exec.env.iter().map(|(name, value)| format!("{name}={value}").into()).collect(),
        secret: secret(exec, shell)?,
        clear_env: exec.bare,
        files: exec.files.clone(),
        from_container: false,
        user: user_spec(exec.user),
        cwd: exec.workdir.to_string(),
        stdin: false,
        terminal: exec.terminal.as_ref().map(|it| *it.borrow()),
        limits: protocol::ExecTimeouts {
            total_ms: exec.limits.total.map(at_least_one_ms),
            silence_ms: exec.limits.silence.map(at_least_one_ms),
            grace_ms: ms(exec.limits.grace),
        },
        life: Lifetime::Job,
        show: OutputMode::Nothing,
        inline_limit: exec.passes_on.unwrap_or(exec.keep_bytes) as u64,
        max_running: None,
    })
}

/// Retained bytes of each end of a stream. The guest has one number for both ends, so an odd limit is rounded up.
pub(crate) fn end_bytes(keep_bytes: usize) -> usize {
    keep_bytes.div_ceil(2).min(usize::MAX / 2)
}

/// The arguments, and whether they are a script. Checks the kernel's limits.
fn arguments(exec: &Exec) -> Result<(Vec<Bytes>, bool)> {
    let (argv, shell) = match &exec.command {
        Command::Argv(argv) => (argv.as_slice(), false),
        Command::Shell(script) => (std::slice::from_ref(script), true),
    };
    if argv.is_empty() {
        return Err(invalid("a command needs at least one argument"));
    }
    if exec.env.keys().any(|name| name.is_empty() || name.contains('=')) {
        return Err(invalid("the name of an environment variable is empty or contains `=`"));
    }
    let variables = exec.env.iter().map(|(name, value)| name.len() + value.len() + 2);
    if argv.iter().map(|it| it.len() + 1).chain(variables).sum::<usize>() > MAX_COMMAND {
        return Err(too_long(format!("arguments and environment exceed {} MiB", MAX_COMMAND >> 20)));
    }
    let texts = argv.iter().chain(exec.env.keys()).chain(exec.env.values());
    if texts.into_iter().any(|it| it.contains('\0')) {
        return Err(invalid("an argument or an environment variable contains a NUL"));
    }
    Ok((argv.iter().map(|it| Bytes::from(it.as_bytes())).collect(), shell))
}

/// The secret that only the program can read.
fn secret(exec: &Exec, shell: bool) -> Result<Option<Bytes>> {
    let Some(secret) = &exec.secret else { return Ok(None) };
    if shell {
        return Err(invalid("a script cannot get a secret"));
    }
    if secret.len() > MAX_SECRET {
        return Err(too_long(format!("the secret is longer than {} KiB", MAX_SECRET >> 10)));
    }
    Ok((!secret.is_empty()).then(|| Bytes::from(secret.reveal())))
}

fn invalid(message: &str) -> Error {
    Error::Refused(RpcError::new(ErrorCode::Invalid, message))
}

/// A user by its ids.
pub(crate) fn user_spec(user: Ids) -> UserSpec {
    UserSpec::Ids { uid: user.uid, gid: Some(user.gid) }
}

pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A limit below a millisecond counts as one millisecond.
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
    fn a_command_beyond_the_kernels_limits_is_refused_before_it_is_sent() {
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
        fn arguments_and_variables_are_encoded_unchanged(
            argv in proptest::collection::vec("[^\0]{0,9}", 1..5),
            env in proptest::collection::btree_map("[A-Z]{1,3}", "[^\0]{0,9}", 0..4),
        ) {
            let env: Vec<_> = env.into_iter().collect();
            let encoded = EncodedExec::foreground(&exec(Command::Argv(argv.clone()), &env), false).unwrap();
            let request: protocol::ExecRequest = coracle_protocol::body::decode(&encoded.body).unwrap();
            let texts = |all: Vec<Bytes>| all.into_iter().map(|it| String::from_utf8(it.0).unwrap()).collect::<Vec<_>>();
            prop_assert_eq!(texts(request.argv), argv);
            prop_assert_eq!(texts(request.env), env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>());
        }
    }
}

//! One `ssh`: it forwards the engine's socket to a path here, for as long as we hold its standard input.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coracle_host::find_program::find_program;
use coracle_host::process::{self, Invocation, Stdin};
use coracle_types::{Capture, ConnectionFault, Error, Excerpt, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use super::destination::SshDestination;
use super::{ConnectionFailure, SshSettings};

/// Looks whether the socket named on its input is there, says so, and stays until its input ends: `ssh` then ends by itself,
/// also when this process was killed.
const REMOTE: &str = "exec sh -c 'IFS= read -r s; if [ ! -S \"$s\" ]; then echo coracle: missing; \
    elif [ ! -r \"$s\" ] || [ ! -w \"$s\" ]; then echo coracle: denied; else echo coracle: ready; fi; exec cat >/dev/null'";

/// A connection with its login takes at most this long.
const WITHIN: Duration = Duration::from_secs(20);

/// Bytes of `ssh`'s error output that are retained.
const MAX_STDERR: usize = 16 << 10;

/// What `ssh` is started with. A person's own configuration decides about keys and known hosts; nothing here asks questions,
/// hands out anything of this machine, or depends on another `ssh`.
const OPTIONS: &[&str] = &[
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "ExitOnForwardFailure=yes",
    "StreamLocalBindMask=0177",
    "StreamLocalBindUnlink=yes",
    "ControlMaster=no",
    "ControlPath=none",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RequestTTY=no",
];

/// A running `ssh`. Ends when it is dropped.
#[derive(Debug)]
pub(super) struct SshSession {
    child: Child,
    forward: PathBuf,
    stderr: Arc<Mutex<Capture>>,
    /// Its end is the end of the command on the other machine.
    stdin: ChildStdin,
}

impl SshSession {
    /// Starts `ssh` and waits until the engine's socket is forwarded to `forward`.
    pub(super) async fn open(
        destination: &SshDestination,
        settings: &SshSettings,
        forward: PathBuf,
    ) -> Result<Self, ConnectionFailure> {
        let invocation = invocation(destination, settings, &forward)?;
        let mut child = process::spawn(&invocation, Stdin::Open)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(ConnectionFailure::new(ConnectionFault::Ended, "`ssh` has no pipes"));
        };
        let stderr_end = Arc::new(Mutex::new(Capture::new(MAX_STDERR)));
        let reader = tokio::spawn(keep_stderr(stderr, stderr_end.clone()));
        let mut session = Self { child, forward, stderr: stderr_end, stdin };
        let answered = tokio::time::timeout(WITHIN, session.handshake(destination, stdout)).await;
        match answered.unwrap_or(Err(ConnectionFault::Unreachable)) {
            Ok(()) => Ok(session),
            Err(fault) => {
                let _ = session.child.start_kill(); // it may have ended
                let _ = tokio::time::timeout(Duration::from_secs(1), reader).await; // its last words
                Err(session.failure(fault))
            }
        }
    }

    /// Whether `ssh` still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// A connection to the engine.
    pub(super) async fn connect(&self) -> Result<UnixStream, ConnectionFailure> {
        UnixStream::connect(&self.forward)
            .await
            .map_err(|err| ConnectionFailure::new(ConnectionFault::Ended, &err.to_string()))
    }

    /// What to say of a connection that the other machine closed before a byte came from it: its `sshd` says the same of
    /// forwards that it refuses and of sockets at which nothing listens.
    pub(super) fn refusal(&self) -> ConnectionFailure {
        self.failure(ConnectionFault::NotForwarded)
    }

    async fn handshake(&mut self, destination: &SshDestination, stdout: ChildStdout) -> Result<(), ConnectionFault> {
        let line = format!("{}\n", destination.socket);
        // A login that fails closes the pipe, and its reason is in the error output.
        let _ = self.stdin.write_all(line.as_bytes()).await;
        // Files that a login reads on the other machine may print something before.
        let mut lines = BufReader::new(stdout.take(64 << 10)).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match line.strip_prefix("coracle: ") {
                Some("ready") => return Ok(()),
                Some("missing") => return Err(ConnectionFault::NoEngine),
                Some("denied") => return Err(ConnectionFault::Denied),
                _ => {}
            }
        }
        Err(ConnectionFault::Ended)
    }

    fn failure(&self, fault: ConnectionFault) -> ConnectionFailure {
        let excerpt = self.stderr();
        let fault = match fault {
            ConnectionFault::Ended => reason(excerpt.as_str()),
            other => other,
        };
        ConnectionFailure { fault, excerpt }
    }

    fn stderr(&self) -> Excerpt {
        Excerpt::from_bytes(&self.stderr.lock().unwrap_or_else(PoisonError::into_inner).bytes())
    }
}

fn invocation(
    destination: &SshDestination,
    settings: &SshSettings,
    forward: &Path,
) -> Result<Invocation, ConnectionFailure> {
    let program = find_program("ssh").map_err(|_| ConnectionFailure::new(ConnectionFault::NoProgram, ""))?;
    let local = forward.display().to_string();
    if local.contains(':') {
        return Err(ConnectionFailure::new(
            ConnectionFault::Ended,
            "the directory for temporary files has a colon in its path",
        ));
    }
    let config = settings.config.as_ref().map(|it| ["-F".to_owned(), it.display().to_string()]);
    let options = OPTIONS.iter().flat_map(|it| ["-o".to_owned(), (*it).to_owned()]);
    let forwarded = ["-T".to_owned(), "-a".to_owned(), "-x".to_owned(), "-L".to_owned()];
    let words = config.into_iter().flatten().chain(options).chain(forwarded);
    let words = words.chain([format!("{local}:{}", destination.socket)]).chain(destination.words());
    let mut invocation = Invocation::new(program, words.chain([REMOTE.to_owned()]));
    invocation.env.insert("PATH".into(), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into());
    invocation.env.insert("HOME".into(), settings.home.clone().into());
    invocation.env.insert("LC_ALL".into(), "C".into()); // its messages are read
    invocation.env.extend(settings.agent.clone().map(|it| ("SSH_AUTH_SOCK".into(), it.into())));
    invocation.dir = Some("/".into());
    Ok(invocation)
}

/// The reason for which `ssh` ended, by its own words.
fn reason(printed: &str) -> ConnectionFault {
    let has = |words: &[&str]| words.iter().any(|it| printed.contains(it));
    if has(&["Host key verification failed", "HOST IDENTIFICATION HAS CHANGED"]) {
        ConnectionFault::HostKey
    } else if has(&["Permission denied (", "Too many authentication failures"]) {
        ConnectionFault::Login
    } else if has(&["Could not resolve hostname", "Connection refused", "timed out", "No route to host", "unreachable"])
    {
        ConnectionFault::Unreachable
    } else {
        ConnectionFault::Ended
    }
}

/// Reads all error output, so that `ssh` never blocks on it, and keeps the end.
async fn keep_stderr(mut pipe: ChildStderr, stderr_end: Arc<Mutex<Capture>>) {
    let mut buffer = vec![0; 4 << 10];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        stderr_end.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..count]);
    }
}

impl From<Error> for ConnectionFailure {
    fn from(err: Error) -> Self {
        ConnectionFailure::new(ConnectionFault::Ended, &err.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_types::EngineKind;

    #[test]
    fn the_reason_is_read_from_what_ssh_prints() {
        for (printed, fault) in [
            (
                "No ED25519 host key is known for [127.0.0.1]:4 and you have requested strict checking.\r\nHost key verification failed.",
                ConnectionFault::HostKey,
            ),
            ("ada@there: Permission denied (publickey,password).", ConnectionFault::Login),
            ("ssh: connect to host 127.0.0.1 port 1: Connection refused", ConnectionFault::Unreachable),
            ("ssh: Could not resolve hostname nowhere: Name or service not known", ConnectionFault::Unreachable),
            ("Connection closed by 127.0.0.1 port 22", ConnectionFault::Ended),
        ] {
            assert_eq!(reason(printed), fault, "{printed}");
        }
    }

    #[test]
    fn ssh_asks_nothing_and_shares_nothing() {
        let destination = SshDestination::parse(EngineKind::Docker, "ssh://ada@there:22").unwrap();
        let settings = SshSettings { home: "/h".into(), config: Some("/c".into()), agent: None };
        let Ok(invocation) = invocation(&destination, &settings, Path::new("/t/forward")) else { return }; // no `ssh` here
        let words: Vec<_> = invocation.words.iter().map(|it| it.to_string_lossy().into_owned()).collect();
        assert_eq!(words[..2], ["-F", "/c"]);
        assert!(words.contains(&"BatchMode=yes".to_owned()) && words.contains(&"ForwardAgent=no".to_owned()));
        let end = words.iter().position(|it| it == "-L").unwrap();
        assert_eq!(
            words[end + 1..words.len() - 1],
            ["/t/forward:/var/run/docker.sock", "-p", "22", "-l", "ada", "--", "there"]
        );
        assert!(!invocation.env.contains_key("SSH_AUTH_SOCK"));
    }
}

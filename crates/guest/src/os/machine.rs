//! The backend of commands: the container that the guest is PID 1 of, or a fake in tests.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use crate::protocol::{EnsureUser, RpcError, TerminalSize, UserInfo, UserSpec};

/// The seam between what the guest promises and how processes are made.
#[async_trait]
pub trait ProcessBackend: fmt::Debug + Send + Sync + 'static {
    /// Starts a command in a session of its own, with the filter in force.
    ///
    /// # Errors
    /// [`SpawnError`]: nothing of it runs.
    async fn start(&self, plan: SpawnSpec) -> Result<Process, SpawnError>;

    /// Sends TERM to the command's process group, waits until its whole tree is gone or `grace` is over, then sends KILL
    /// to the group and to everything else that the command left, until none is left. Whether that came true.
    async fn end(&self, mark: TreeId, grace: Duration) -> bool;

    /// Processes of a command that are there now.
    async fn count(&self, mark: TreeId) -> u32;

    /// Adds a user and its group to the tables of the image, where they are missing and the tables can be written.
    ///
    /// # Errors
    /// A table could not be read or written, although it can be.
    fn add_user(&self, user: NewUser<'_>) -> Result<(), RpcError>;

    /// Makes sure of a user and a directory, and looks with a process of that user.
    ///
    /// # Errors
    /// Why it cannot be.
    async fn ensure_user(&self, ask: EnsureUser) -> Result<UserInfo, RpcError>;

    /// Number of processes that the kernel killed here for lack of memory.
    fn oom_kills(&self) -> u64;

    /// The directory that paths are resolved beneath.
    fn root(&self) -> &Path;

    /// Uid and gid of a user, with all its groups.
    ///
    /// # Errors
    /// [`ErrorCode::NoUser`](crate::protocol::ErrorCode::NoUser)
    fn ids(&self, who: &UserSpec) -> Result<Ids, RpcError>;
}

/// Identifies the processes of a command, also after they changed session, group, parent and environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u64);

/// A user that there is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewUser<'a> {
    /// Its name, and that of its group, unless another account has it.
    pub name: &'a str,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its home, which is not made.
    pub home: &'a str,
    /// Whether the account allows a login.
    pub login: bool,
}

/// Numbers of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// A command, decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnSpec {
    /// Its words; with `shell` one word, a script. None holds a NUL.
    pub words: Vec<Vec<u8>>,
    /// The word is a script for `/bin/sh`.
    pub shell: bool,
    /// Added to the guest's own environment before `env` is.
    pub session: SessionVariables,
    /// `NAME=value`, added to the guest's own environment. The last of a name wins. Missing values of `HOME`, `USER`,
    /// `LOGNAME` and `SHELL` come from the passwd entry. `PATH` is `$HOME/.local/bin` followed by that of session or
    /// guest. The default of `LANG` is `C.UTF-8`, that of `TERM` on a terminal `xterm-256color`. `HOME`, `USER`,
    /// `LOGNAME`, `SHELL` and `PWD` of the guest itself are not passed on: the engine set them for PID 1.
    pub env: Vec<Vec<u8>>,
    /// The user.
    pub user: UserSpec,
    /// The working directory: an absolute path beneath the root.
    pub cwd: String,
    /// It gets input.
    pub stdin: bool,
    /// The size of its terminal, if it has one.
    pub terminal: Option<TerminalSize>,
    /// Identifies its processes.
    pub mark: TreeId,
    /// It finds these bytes on its descriptor 3, and then an end.
    pub secret: Option<SecretBytes>,
    /// Its environment is `env` alone.
    pub bare: bool,
}

/// Bytes with a blank `Debug`, to keep them out of logs.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(Vec<u8>);

impl SecretBytes {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes")
    }
}

/// Variables that all commands have, `NAME=value`. They may be secrets: its `Debug` is blank.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SessionVariables {
    variables: Arc<[Vec<u8>]>,
    /// The user of the session's commands, once the host has set it.
    pub(crate) user: Option<u32>,
}

impl SessionVariables {
    pub(crate) fn new(variables: Vec<Vec<u8>>) -> Self {
        Self { variables: variables.into(), user: None }
    }

    /// `NAME=value` each.
    #[must_use]
    pub fn variables(&self) -> &[Vec<u8>] {
        &self.variables
    }
}

impl fmt::Debug for SessionVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionVariables")
    }
}

/// The terminal of a command.
pub trait TerminalDevice: Send + Sync {
    /// Changes its size.
    fn resize(&self, size: TerminalSize);

    /// Another way to type into it. To shut it down types the end of a file.
    ///
    /// # Errors
    /// The kernel's: too many descriptors.
    fn open_input(&self) -> std::io::Result<Box<dyn AsyncWrite + Send + Unpin>>;
}

/// A command that was started.
pub struct Process {
    /// Its process id inside.
    pub pid: u32,
    /// It runs as uid 0.
    pub root: bool,
    /// Standard input; `None` is an end of file at once.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Standard error; `None` on a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its terminal, if it has one.
    pub terminal: Option<Arc<dyn TerminalDevice>>,
    /// Receives the exit status once. A dropped sender means that the status is unknown.
    pub exit: oneshot::Receiver<Exit>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// The exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(u8),
    /// This signal ended it.
    Signal(i32),
}

/// Why a command does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpawnError {
    /// The program is missing: exit code 127.
    NoProgram,
    /// The program cannot be executed: exit code 126. Contains the reason.
    NoPermission(String),
    /// Anything else.
    Fault(RpcError),
}

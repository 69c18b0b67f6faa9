//! The trait of a backend that runs commands: the container of this PID 1, or a fake in tests.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use crate::protocol::{EnsureUser, RpcError, TerminalSize, UserInfo, UserSpec};

/// Starts and ends the processes of commands.
#[async_trait]
pub trait ProcessBackend: fmt::Debug + Send + Sync + 'static {
    /// Starts a command in a new session, under the seccomp filter.
    ///
    /// # Errors
    /// [`SpawnError`] if the command does not run.
    async fn start(&self, plan: SpawnSpec) -> Result<Process, SpawnError>;

    /// Sends TERM to the command's process group, waits until its whole tree has ended or `grace` is over, then sends KILL
    /// to the group and to all other processes of the command until none is left. Returns whether all have ended.
    async fn end(&self, mark: TreeId, grace: Duration) -> bool;

    /// Number of live processes of a command.
    async fn count(&self, mark: TreeId) -> u32;

    /// Adds a user and its group to the tables of the image, unless they exist or the tables are read-only.
    ///
    /// # Errors
    /// Fails if a table exists but cannot be read or written.
    fn add_user(&self, user: NewUser<'_>) -> Result<(), RpcError>;

    /// Creates a user and a directory if they are missing, and checks the user's access with a process of that user.
    ///
    /// # Errors
    /// Fails if the user or the directory cannot be created.
    async fn ensure_user(&self, request: EnsureUser) -> Result<UserInfo, RpcError>;

    /// Number of processes of this container that the kernel killed for lack of memory.
    fn oom_kills(&self) -> u64;

    /// The directory beneath which paths are resolved.
    fn root(&self) -> &Path;

    /// Uid and gid of a user, with all its groups.
    ///
    /// # Errors
    /// [`ErrorCode::NoUser`](crate::protocol::ErrorCode::NoUser)
    fn ids(&self, who: &UserSpec) -> Result<Ids, RpcError>;
}

/// Identifies the processes of a command, even after they changed session, group, parent and environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u64);

/// A user to add.
#[derive(Clone, Copy, Debug)]
pub struct NewUser<'a> {
    /// Its name and that of its group; if another account has the name, a number is added.
    pub name: &'a str,
    /// Its uid.
    pub uid: u32,
    /// Its gid.
    pub gid: u32,
    /// Its home, which is not created.
    pub home: &'a str,
    /// Whether the account allows a login.
    pub login: bool,
}

/// The numeric ids of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// A command to start, with every default resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnSpec {
    /// The arguments; with `shell` one argument, a script. None contains a NUL.
    pub argv: Vec<Vec<u8>>,
    /// Whether the argument is a script for `/bin/sh`.
    pub shell: bool,
    /// Added to the guest's own environment before `env` is.
    pub session: SessionVariables,
    /// `NAME=value`, added to the guest's own environment. If a name occurs twice, the last value wins. Missing values of `HOME`, `USER`,
    /// `LOGNAME` and `SHELL` come from the passwd entry. `PATH` is `$HOME/.local/bin` followed by that of session or
    /// guest. The default of `LANG` is `C.UTF-8`, that of `TERM` on a terminal `xterm-256color`. `HOME`, `USER`,
    /// `LOGNAME`, `SHELL` and `PWD` of the guest itself are not passed on: the engine set them for PID 1.
    pub env: Vec<Vec<u8>>,
    /// The exec user.
    pub user: UserSpec,
    /// The working directory: an absolute path beneath the root.
    pub cwd: String,
    /// Whether the command gets input.
    pub stdin: bool,
    /// The size of the terminal, if it has one.
    pub terminal: Option<TerminalSize>,
    /// Identifies the command's processes.
    pub mark: TreeId,
    /// Bytes that the command can read once from its descriptor 3.
    pub secret: Option<SecretBytes>,
    /// Whether the environment is `env` alone.
    pub bare: bool,
}

/// Bytes with a blank `Debug`, to keep them out of logs.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(Vec<u8>);

impl SecretBytes {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The secret.
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

/// Variables of all commands, `NAME=value` each. They may be secrets, so `Debug` does not print them.
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
    /// Changes the size.
    fn resize(&self, size: TerminalSize);

    /// Opens another writer for its input. Shutting the writer down types the end of a file.
    ///
    /// # Errors
    /// Fails if there are too many descriptors.
    fn open_input(&self) -> std::io::Result<Box<dyn AsyncWrite + Send + Unpin>>;
}

/// A command that was started.
pub struct Process {
    /// Its process id inside the container.
    pub pid: u32,
    /// Whether it runs as uid 0.
    pub root: bool,
    /// Standard input; `None` if the command reads an end of file at once.
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
    /// Another error.
    Fault(RpcError),
}

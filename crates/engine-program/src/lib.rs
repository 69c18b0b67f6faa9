//! Runs an engine's command-line program: finds it, gives it an environment of its own, forwards it over ssh, and runs
//! commands and guest links in containers through it.
//!
//! `coracle-docker` and `coracle-apple` are engines on top of [`EngineProgram`].
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use coracle_engine_program::{EngineArgs, EngineProgram};
//!
//! # async fn example(engine: &EngineProgram) -> coracle_types::Result<()> {
//! let output = engine.query("version", EngineArgs::verb("version"), Duration::from_secs(5)).await?;
//! # drop(output);
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant:** a program is started with arguments, never with shell text, and with an environment that is set here, not
//! the caller's.
//! **Invariant:** every call has a deadline, after which the program and its children are killed.

pub mod argv;
pub mod deadline;
pub mod exec;
pub mod json;
pub mod link;
mod settings;
mod ssh;
mod unpack;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub use self::argv::EngineArgs;
pub use self::settings::{ApiUse, EngineSettings};
pub use self::ssh::{SshDestination, SshForward};
pub use self::unpack::unpacked;
use coracle_host::find_program::find_program;
use coracle_host::process::{self, Invocation, ProgramOutput, Stdin, exit_of};
use coracle_host::process_group::ProcessGroup;
use coracle_runtime::ContainerRuntime;
use coracle_types::{ContainerId, EngineKind, Error, Excerpt, Exec, Ids, Result};

/// More lines than the retained bytes hold.
pub const LOG_LINES: usize = 200;

/// The engine's address, as an argument of its program.
#[derive(Debug)]
pub struct ProgramOptions {
    pub endpoint: String,
    /// Words before each verb.
    pub prefix: Vec<OsString>,
    pub env: Vec<(String, OsString)>,
    /// The connection to another machine, whose socket the words name.
    pub forward: Option<Arc<SshForward>>,
}

/// An engine whose program runs commands in containers.
pub trait RunsCommands: ContainerRuntime + Clone + 'static {
    fn program(&self) -> &EngineProgram;

    /// Files and sockets of this host are shared with containers.
    fn shares_sockets(&self) -> bool;

    /// A command, and the variables that the engine's program needs for it.
    fn exec_words(&self, id: &ContainerId, exec: &Exec, mark: &str) -> (EngineArgs, Vec<(String, OsString)>);

    /// One of our constant programs; its arguments follow.
    fn constant_program(&self, id: &ContainerId, user: Ids, program: &str) -> EngineArgs;

    /// The guest's own way to itself, which stays open as long as a link.
    fn connect_words(&self, id: &ContainerId) -> EngineArgs;
}

/// The largest answer that is read: an `inspect` of many containers.
pub const ANSWER_BYTES: usize = 32 << 20;

/// The program of one engine, where it listens and what it sees.
#[derive(Clone, Debug)]
pub struct EngineProgram {
    kind: EngineKind,
    program: PathBuf,
    /// Words before each verb: where the engine listens.
    prefix: Vec<OsString>,
    env: BTreeMap<String, OsString>,
    endpoint: String,
    forward: Option<Arc<SshForward>>,
    temp_dir: PathBuf,
    home: PathBuf,
    /// The program's working directory: Podman's monitor outlives it and writes files, such as `oom`, into the
    /// directory that it inherited, which must not be the caller's.
    working_dir: PathBuf,
}

impl EngineProgram {
    /// Finds the program. Asks the engine nothing.
    pub fn find(kind: EngineKind, settings: &EngineSettings, options: ProgramOptions) -> Result<Self> {
        let program = match &settings.program {
            Some(program) if program.is_file() => program.clone(),
            Some(missing) => return Err(Error::NotInstalled { program: missing.display().to_string() }),
            None => find_program(kind.as_str())?,
        };
        let mut env: BTreeMap<String, OsString> = BTreeMap::from([
            ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
            ("HOME".into(), settings.home.clone().into()),
            ("LC_ALL".into(), "C.UTF-8".into()),
            ("TMPDIR".into(), settings.temp_dir.clone().into()),
        ]);
        env.extend(settings.runtime_dir.clone().map(|it| ("XDG_RUNTIME_DIR".into(), it.into())));
        env.extend(options.env);
        Ok(Self {
            kind,
            program,
            prefix: options.prefix,
            env,
            endpoint: options.endpoint,
            forward: options.forward,
            temp_dir: settings.temp_dir.clone(),
            home: settings.home.clone(),
            working_dir: settings.config_dir.clone(),
        })
    }

    /// The words as an invocation, to give a person a terminal in a container for example.
    #[must_use]
    pub fn with_words(&self, words: impl IntoIterator<Item = String>) -> Invocation {
        self.invocation(EngineArgs(words.into_iter().map(Into::into).collect()))
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Where the engine listens as seen from here: the socket of a connection to another machine, else its endpoint.
    pub fn address(&self) -> String {
        match &self.forward {
            Some(forward) => format!("unix://{}", forward.socket().display()),
            None => self.endpoint.clone(),
        }
    }

    /// The user's home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The environment of its program.
    pub fn env(&self) -> &BTreeMap<String, OsString> {
        &self.env
    }

    /// Creates a directory for temporary files that only Coracle uses.
    pub fn temp_dir(&self, what: &str) -> Result<tempfile::TempDir> {
        let made = tempfile::Builder::new().prefix(&format!("coracle-{what}-")).tempdir_in(&self.temp_dir);
        let what = || format!("cannot make a directory in `{}`", self.temp_dir.display());
        made.map_err(|source| Error::Host { what: what(), source })
    }

    /// Whether the engine runs on this host, judged by its address.
    pub fn is_local(&self) -> bool {
        self.endpoint == "local" || self.socket().is_some()
    }

    pub fn invocation(&self, words: EngineArgs) -> Invocation {
        let mut it = Invocation::new(&self.program, self.prefix.iter().cloned().chain(words.0));
        it.env = self.env.clone();
        it.dir = Some(self.working_dir.clone());
        it
    }

    /// Coracle's directory in which the engine's programs run.
    pub fn working_dir(&self) -> &Path {
        &self.working_dir
    }

    /// Runs and gives back whatever came of it.
    pub async fn run(&self, verb: &'static str, words: EngineArgs, within: Duration) -> Result<ProgramOutput> {
        process::run(verb, &self.invocation(words), Stdin::Empty, (within, ANSWER_BYTES)).await
    }

    /// Runs; a status other than 0 is an error.
    pub async fn query(&self, verb: &'static str, words: EngineArgs, within: Duration) -> Result<ProgramOutput> {
        self.feed(verb, words, Stdin::Empty, within).await
    }

    /// As [`query`](Self::query), with input.
    pub async fn feed(
        &self,
        verb: &'static str,
        words: EngineArgs,
        stdin: Stdin,
        within: Duration,
    ) -> Result<ProgramOutput> {
        self.finish(verb, &self.invocation(words), stdin, within).await
    }

    /// Runs what was put together already; a status other than 0 is an error.
    pub async fn finish(
        &self,
        verb: &'static str,
        invocation: &Invocation,
        stdin: Stdin,
        within: Duration,
    ) -> Result<ProgramOutput> {
        let ended = process::run(verb, invocation, stdin, (within, ANSWER_BYTES)).await?;
        if ended.ok() { Ok(ended) } else { Err(self.failed(verb, &ended)) }
    }

    /// Like [`feed`](Self::feed), with a temporary directory that is removed afterwards: Podman 4.3 leaves a copy of
    /// what its `cp` reads.
    pub async fn feed_swept(
        &self,
        verb: &'static str,
        words: EngineArgs,
        stdin: Stdin,
        within: Duration,
    ) -> Result<ProgramOutput> {
        let temp = self.temp_dir("copy")?;
        let mut invocation = self.invocation(words);
        invocation.env.insert("TMPDIR".into(), temp.path().into());
        self.finish(verb, &invocation, stdin, within).await
    }

    /// Runs with its output going to a file, up to a limit.
    pub async fn store(
        &self,
        verb: &'static str,
        words: EngineArgs,
        into: File,
        max_bytes: u64,
        within: Duration,
    ) -> Result<()> {
        let mut child = process::spawn(&self.invocation(words), Stdin::Empty)?;
        let mut group = ProcessGroup::new(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (stored, words) =
                tokio::join!(async { store(stdout, tokio::fs::File::from_std(into), max_bytes).await }, async {
                    first_bytes(stderr).await
                });
            let status = group.wait(&mut child).await.map_err(|source| host_error(verb, source))?;
            stored?;
            match exit_of(status) {
                0 => Ok(()),
                exit => Err(Error::Engine { verb, exit, excerpt: Excerpt::from_bytes(&words) }),
            }
        };
        let Ok(done) = tokio::time::timeout(within, work).await else {
            group.end(&mut child).await;
            return Err(Error::TimedOut { verb, after: within });
        };
        done
    }

    pub fn failed(&self, verb: &'static str, ended: &ProgramOutput) -> Error {
        if let Some(err) = self.not_connected() {
            return err;
        }
        let Some(path) = self.socket() else {
            return Error::Engine { verb, exit: ended.exit, excerpt: Excerpt::from_bytes(&ended.stderr.bytes()) };
        };
        // Without a daemon every verb fails alike: a connection to its socket distinguishes that case.
        match connects(path) {
            Ok(()) => Error::Engine { verb, exit: ended.exit, excerpt: Excerpt::from_bytes(&ended.stderr.bytes()) },
            Err(_) => self.unavailable(ended),
        }
    }

    /// As [`invocation`](Self::invocation), with more variables.
    pub fn with_env(&self, words: EngineArgs, env: Vec<(String, OsString)>) -> Invocation {
        let mut it = self.invocation(words);
        it.env.extend(env);
        it
    }

    pub fn unavailable(&self, ended: &ProgramOutput) -> Error {
        if let Some(err) = self.not_connected() {
            return err;
        }
        let connected = self.socket().map(connects);
        let denied = matches!(connected, Some(Err(err)) if err.kind() == std::io::ErrorKind::PermissionDenied);
        Error::Unavailable { engine: self.kind, denied, excerpt: Excerpt::from_bytes(&ended.stderr.bytes()) }
    }

    /// Why the machine of the engine is not reached, if it is that.
    pub fn not_connected(&self) -> Option<Error> {
        let failure = self.forward.as_ref()?.failure()?;
        let (engine, endpoint) = (self.kind, self.endpoint.clone());
        Some(Error::NotConnected { engine, endpoint, fault: failure.fault, excerpt: failure.excerpt })
    }

    fn socket(&self) -> Option<&Path> {
        self.endpoint.strip_prefix("unix://").map(Path::new)
    }
}

/// Whether a program listens at a socket. It does not wait: a stopped daemon with a full queue listens, too.
fn connects(path: &Path) -> std::io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

fn host_error(verb: &'static str, source: std::io::Error) -> Error {
    Error::Host { what: format!("cannot take the output of `{verb}`"), source }
}

async fn store(pipe: Option<tokio::process::ChildStdout>, mut into: tokio::fs::File, max_bytes: u64) -> Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let (mut buffer, mut stored) = (vec![0; 256 << 10], 0_u64);
    loop {
        let count = pipe.read(&mut buffer).await.map_err(|source| host_error("download", source))?;
        if count == 0 {
            return into.flush().await.map_err(|source| host_error("download", source));
        }
        let fits = usize::try_from(max_bytes - stored).map_or(count, |left| left.min(count));
        // Files within the limit are returned even if more follow: the first header describes the requested file.
        into.write_all(&buffer[..fits]).await.map_err(|source| host_error("download", source))?;
        stored += fits as u64;
        if fits < count {
            into.flush().await.map_err(|source| host_error("download", source))?;
            return Err(Error::TooLarge { max_bytes });
        }
    }
}

async fn first_bytes(pipe: Option<tokio::process::ChildStderr>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.take(64 << 10).read_to_end(&mut bytes).await;
    }
    bytes
}

//! One engine's program with its own environment: run, ask, feed, store.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::args::Words;
use super::{Dialect, EngineSettings, conf, detect};
use crate::host::process::{self, Finished, Invocation, Stdin, exit_of};
use crate::{Error, Excerpt, Result};

/// The largest answer that is read: an `inspect` of many containers.
pub(super) const ANSWER_BYTES: usize = 32 << 20;

#[derive(Clone, Debug)]
pub(super) struct Client {
    dialect: Dialect,
    program: PathBuf,
    /// Words before each verb: where the engine listens.
    prefix: Vec<OsString>,
    env: BTreeMap<String, OsString>,
    endpoint: String,
    temp_dir: PathBuf,
    home: PathBuf,
    /// Where the program starts: Podman's monitor outlives it and writes files, such as `oom`, into the directory that it
    /// inherited, which must not be the caller's.
    working_dir: PathBuf,
}

impl Client {
    pub(super) fn new(dialect: Dialect, settings: &EngineSettings) -> Result<Self> {
        let program = match &settings.program {
            Some(program) if program.is_file() => program.clone(),
            Some(missing) => return Err(Error::NotInstalled { program: missing.display().to_string() }),
            None => detect::find_program(dialect.program())?,
        };
        let (endpoint, prefix) = endpoint(dialect, settings);
        let env = environment(dialect, settings)?;
        Ok(Self {
            dialect,
            program,
            prefix,
            env,
            endpoint,
            temp_dir: settings.temp_dir.clone(),
            home: settings.home.clone(),
            working_dir: settings.config_dir.clone(),
        })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The person's home.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// What its program sees.
    pub(super) fn env(&self) -> &BTreeMap<String, OsString> {
        &self.env
    }

    /// A directory for temporary files, of ours alone.
    pub(super) fn temp_dir(&self, what: &str) -> Result<tempfile::TempDir> {
        let made = tempfile::Builder::new().prefix(&format!("coracle-{what}-")).tempdir_in(&self.temp_dir);
        let what = || format!("cannot make a directory in `{}`", self.temp_dir.display());
        made.map_err(|source| Error::Host { what: what(), source })
    }

    /// The engine runs on this host, as far as its address tells.
    pub(super) fn is_local(&self) -> bool {
        self.endpoint == "local" || self.socket().is_some()
    }

    pub(super) fn invocation(&self, words: Words) -> Invocation {
        let mut it = Invocation::new(&self.program, self.prefix.iter().cloned().chain(words.0));
        it.env = self.env.clone();
        it.dir = Some(self.working_dir.clone());
        it
    }

    /// The directory of ours in which the engine's programs run.
    pub(super) fn working_dir(&self) -> &Path {
        &self.working_dir
    }

    /// Runs and gives back whatever came of it.
    pub(super) async fn run(&self, verb: &'static str, words: Words, within: Duration) -> Result<Finished> {
        process::run(verb, &self.invocation(words), Stdin::Empty, (within, ANSWER_BYTES)).await
    }

    /// Runs; a status other than 0 is an error.
    pub(super) async fn ask(&self, verb: &'static str, words: Words, within: Duration) -> Result<Finished> {
        self.feed(verb, words, Stdin::Empty, within).await
    }

    /// As [`ask`](Self::ask), with input.
    pub(super) async fn feed(
        &self,
        verb: &'static str,
        words: Words,
        stdin: Stdin,
        within: Duration,
    ) -> Result<Finished> {
        self.finish(verb, &self.invocation(words), stdin, within).await
    }

    /// Runs what was put together already; a status other than 0 is an error.
    pub(super) async fn finish(
        &self,
        verb: &'static str,
        invocation: &Invocation,
        stdin: Stdin,
        within: Duration,
    ) -> Result<Finished> {
        let ended = process::run(verb, invocation, stdin, (within, ANSWER_BYTES)).await?;
        if ended.ok() { Ok(ended) } else { Err(self.failed(verb, &ended)) }
    }

    /// As [`feed`](Self::feed), with a directory for temporary files that goes with them: Podman 4.3 leaves a copy of
    /// what its `cp` reads.
    pub(super) async fn feed_swept(
        &self,
        verb: &'static str,
        words: Words,
        stdin: Stdin,
        within: Duration,
    ) -> Result<Finished> {
        let temp = self.temp_dir("copy")?;
        let mut invocation = self.invocation(words);
        invocation.env.insert("TMPDIR".into(), temp.path().into());
        self.finish(verb, &invocation, stdin, within).await
    }

    /// Runs with its output going to a file, up to a limit.
    pub(super) async fn store(
        &self,
        verb: &'static str,
        words: Words,
        into: File,
        max_bytes: u64,
        within: Duration,
    ) -> Result<()> {
        let mut child = process::spawn(&self.invocation(words), Stdin::Empty)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (stored, words) =
                tokio::join!(async { store(stdout, tokio::fs::File::from_std(into), max_bytes).await }, async {
                    first_bytes(stderr).await
                });
            let status = child.wait().await.map_err(|source| host_error(verb, source))?;
            stored?;
            match exit_of(status) {
                0 => Ok(()),
                exit => Err(Error::Engine { verb, exit, excerpt: Excerpt::of(&words) }),
            }
        };
        tokio::time::timeout(within, work).await.map_err(|_| Error::TimedOut { verb, after: within })?
    }

    pub(super) fn failed(&self, verb: &'static str, ended: &Finished) -> Error {
        let Some(path) = self.socket() else {
            return Error::Engine { verb, exit: ended.exit, excerpt: Excerpt::of(&ended.stderr.bytes()) };
        };
        // A daemon that went away fails every verb alike: whether its socket takes a connection tells.
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Error::Engine { verb, exit: ended.exit, excerpt: Excerpt::of(&ended.stderr.bytes()) },
            Err(_) => self.unavailable(ended),
        }
    }

    /// As [`invocation`](Self::invocation), with more variables.
    pub(super) fn carrying(&self, (words, env): (Words, Vec<(String, OsString)>)) -> Invocation {
        let mut it = self.invocation(words);
        it.env.extend(env);
        it
    }

    pub(super) fn unavailable(&self, ended: &Finished) -> Error {
        let connected = self.socket().map(std::os::unix::net::UnixStream::connect);
        let denied = matches!(connected, Some(Err(err)) if err.kind() == std::io::ErrorKind::PermissionDenied);
        Error::Unavailable { engine: self.dialect.kind(), denied, excerpt: Excerpt::of(&ended.stderr.bytes()) }
    }

    fn socket(&self) -> Option<&Path> {
        self.endpoint.strip_prefix("unix://").map(Path::new)
    }
}

/// A file that takes no more than it may.
pub(super) struct Kept {
    pub(super) into: File,
    pub(super) left: u64,
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(std::io::ErrorKind::FileTooLarge)?;
        self.into.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.into.flush()
    }
}

fn host_error(verb: &'static str, source: std::io::Error) -> Error {
    Error::Host { what: format!("cannot take the output of `{verb}`"), source }
}

async fn store(pipe: Option<tokio::process::ChildStdout>, mut into: tokio::fs::File, max_bytes: u64) -> Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let (mut buffer, mut stored) = (vec![0; 256 << 10], 0);
    loop {
        let count = pipe.read(&mut buffer).await.map_err(|source| host_error("download", source))?;
        if count == 0 {
            return into.flush().await.map_err(|source| host_error("download", source));
        }
        stored += count as u64;
        if stored > max_bytes {
            return Err(Error::TooLarge { max_bytes });
        }
        into.write_all(&buffer[..count]).await.map_err(|source| host_error("download", source))?;
    }
}

async fn first_bytes(pipe: Option<tokio::process::ChildStderr>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.take(64 << 10).read_to_end(&mut bytes).await;
    }
    bytes
}

fn endpoint(dialect: Dialect, settings: &EngineSettings) -> (String, Vec<OsString>) {
    match (dialect, &settings.endpoint) {
        (Dialect::Docker, endpoint) => {
            let endpoint = endpoint.clone().unwrap_or_else(|| "unix:///var/run/docker.sock".into());
            let word = format!("--host={endpoint}").into();
            (endpoint, vec![word])
        }
        (Dialect::Podman, Some(endpoint)) => (endpoint.clone(), vec![format!("--url={endpoint}").into()]),
        (Dialect::Podman, None) | (Dialect::Apple, _) => ("local".into(), vec![]),
    }
}

/// What the engine's program sees: nothing of the person's that could end up in a container.
fn environment(dialect: Dialect, settings: &EngineSettings) -> Result<BTreeMap<String, OsString>> {
    let mut env: BTreeMap<String, OsString> = BTreeMap::from([
        ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
        ("HOME".into(), settings.home.clone().into()),
        ("LC_ALL".into(), "C.UTF-8".into()),
        ("TMPDIR".into(), settings.temp_dir.clone().into()),
    ]);
    env.extend(settings.runtime_dir.clone().map(|it| ("XDG_RUNTIME_DIR".into(), it.into())));
    match dialect {
        Dialect::Docker => {
            let dir = settings.config_dir.join("docker");
            std::fs::create_dir_all(&dir).map_err(|source| cannot_write(&dir, source))?;
            env.insert("DOCKER_CONFIG".into(), dir.into());
        }
        Dialect::Podman => {
            env.insert("CONTAINERS_CONF".into(), write_containers_conf(settings)?.into());
        }
        Dialect::Apple => {}
    }
    Ok(env)
}

fn cannot_write(path: &Path, source: std::io::Error) -> Error {
    Error::Host { what: format!("cannot write `{}`", path.display()), source }
}

fn write_containers_conf(settings: &EngineSettings) -> Result<PathBuf> {
    let path = settings.config_dir.join("containers.conf");
    let texts: Vec<_> =
        conf::sources(&settings.home).iter().filter_map(|it| std::fs::read_to_string(it).ok()).collect();
    let merged = conf::merge(conf::Machine::look().mends(), &texts).map_err(|err| Error::Host {
        what: "cannot read the configuration of Podman (containers.conf)".into(),
        source: std::io::Error::other(err.to_string()),
    })?;
    if std::fs::read_to_string(&path).is_ok_and(|it| it == merged) {
        return Ok(path);
    }
    let write = || {
        std::fs::create_dir_all(&settings.config_dir)?;
        let mut file = tempfile::NamedTempFile::new_in(&settings.config_dir)?;
        file.write_all(merged.as_bytes())?;
        file.persist(&path).map_err(|err| err.error)
    };
    write().map_err(|source| cannot_write(&path, source))?;
    Ok(path)
}

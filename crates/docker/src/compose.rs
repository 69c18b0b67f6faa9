//! Compose's own program, and where it reaches an engine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coracle_host::find_program::find_program_in;
use coracle_host::process::{self, Invocation, ProgramOutput, Stdin};
use coracle_runtime::ContainerRuntime;
use coracle_types::{Capability, Error, ProjectName, Result};
use tokio::io::AsyncRead;
use tokio::process::Child;

use super::args::EngineArgs;
use super::{CliRuntime, Dialect};

/// Directories of Docker's plugin; it also runs on its own, and works with Podman's socket as with Docker's.
const PLUGINS: &[&str] = &[
    "/usr/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
    "/usr/local/lib/docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/opt/homebrew/lib/docker/cli-plugins",
    "/Applications/Docker.app/Contents/Resources/cli-plugins",
];

/// The first version that waits for health, and reports it, as we need it.
const OLDEST: (u32, u32) = (2, 20);

/// The largest answer that is read.
const ANSWER_BYTES: usize = 16 << 20;

const VERSION_WITHIN: Duration = Duration::from_secs(10);

/// For the start of Podman's service: on a machine with much to do it takes more than 10 s.
const SERVICE_WITHIN: Duration = Duration::from_secs(30);

/// Podman's service is for our calls alone, and outlives us no longer than this.
const SERVICE_IDLE_S: u32 = 10;

impl CliRuntime {
    /// Version of Compose for this engine, if it is there.
    pub(super) async fn installed_compose(&self) -> Option<String> {
        let program = compose_program(self.client.home()).ok()?;
        let invocation = Invocation::new(program, ["version", "--short"]);
        let ended = process::run("compose version", &invocation, Stdin::Empty, (VERSION_WITHIN, 4096)).await.ok()?;
        ended.ok().then(|| ended.stdout.text().trim().to_owned())
    }

    /// Compose's program, if it is new enough.
    pub(super) async fn compose(&self) -> Result<PathBuf> {
        let unsupported = || Error::Unsupported { engine: self.kind(), capability: Capability::Compose };
        let version = self.installed_compose().await;
        if !version.as_deref().is_some_and(is_new_enough) {
            return Err(unsupported());
        }
        compose_program(self.client.home())
    }

    /// Lets Compose act on the engine.
    pub(super) async fn compose_acts(
        &self,
        verb: &'static str,
        words: EngineArgs,
        stdin: Stdin,
        within: Duration,
    ) -> Result<ProgramOutput> {
        let program = self.compose().await?;
        let engine = self.socket().await?;
        let mut invocation = Invocation::new(program, words.0);
        invocation.env = self.client.env().clone();
        invocation.env.insert("DOCKER_HOST".into(), engine.address.clone());
        invocation.dir = Some(self.client.working_dir().to_owned());
        let done = process::run(verb, &invocation, stdin, (within, ANSWER_BYTES)).await;
        self.lookup.note_changes();
        done
    }

    /// The socket for Compose. Podman's own service runs for the call, with our configuration: that of the user may
    /// put variables and mounts into containers.
    async fn socket(&self) -> Result<Socket> {
        if self.dialect == Dialect::Docker || self.client.endpoint() != "local" {
            return Ok(Socket { address: self.client.address().into(), _service: None });
        }
        let dir = self.client.temp_dir("podman")?;
        let path = dir.path().join("s");
        let address: OsString = format!("unix://{}", path.display()).into();
        let words = EngineArgs::verb("system service").flag("time", SERVICE_IDLE_S).word(&address);
        let mut service = process::spawn(&self.client.invocation(words), Stdin::Empty)?;
        swallow(service.stdout.take());
        swallow(service.stderr.take());
        answers(&path, &mut service).await?;
        Ok(Socket { address, _service: Some((service, dir)) })
    }
}

/// An engine's socket, as long as this is held.
struct Socket {
    address: OsString,
    /// Ended and removed when it is dropped.
    _service: Option<(Child, tempfile::TempDir)>,
}

/// Takes what it prints: it would stop at a pipe that is full, and end at one that is closed.
fn swallow(pipe: Option<impl AsyncRead + Send + Unpin + 'static>) {
    if let Some(mut pipe) = pipe {
        tokio::spawn(async move { tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await });
    }
}

async fn answers(path: &Path, service: &mut Child) -> Result<()> {
    let begun = Instant::now();
    while tokio::net::UnixStream::connect(path).await.is_err() {
        let ended = service.try_wait().ok().flatten();
        if let Some(status) = ended {
            let excerpt = coracle_types::Excerpt::from_bytes(b"it ended before it answered");
            return Err(Error::Engine { verb: "system service", exit: process::exit_of(status), excerpt });
        }
        if begun.elapsed() > SERVICE_WITHIN {
            return Err(Error::TimedOut { verb: "system service", after: SERVICE_WITHIN });
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn compose_program(home: &Path) -> Result<PathBuf> {
    let own = home.join(".docker/cli-plugins");
    let dirs: Vec<_> = PLUGINS.iter().map(PathBuf::from).chain([own]).collect();
    find_program_in("docker-compose", &dirs)
}

/// `2.26.1-4`, `v2.29.7+ds`, `2.20`.
fn is_new_enough(version: &str) -> bool {
    let mut parts = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= OLDEST,
        _ => false,
    }
}

/// A project from a file on standard input, whose relative paths start from `dir`.
pub(super) fn file(project: &ProjectName, dir: &Path) -> EngineArgs {
    let it = EngineArgs::default().words(["--file", "-"]).flag("project-name", project).word("--env-file=/dev/null");
    let mut dir_word = OsString::from("--project-directory=");
    dir_word.push(dir);
    it.word(dir_word).word("--ansi=never").word("--progress=plain")
}

/// A project that is there, by its name alone.
pub(super) fn named(project: &ProjectName) -> EngineArgs {
    EngineArgs::default().flag("project-name", project).word("--ansi=never").word("--progress=plain")
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn versions_are_compared_by_number() {
        for fine in ["2.20", "2.20.0", "v2.26.1-4", "2.29.7+ds1", "5.0.1"] {
            assert!(is_new_enough(fine), "{fine}");
        }
        for old in ["2.19.9", "1.29.2", "2", "", "dev"] {
            assert!(!is_new_enough(old), "{old}");
        }
    }
}

//! Runs the program of an OCI runtime.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::find_program::find_program;
use coracle_host::process::{self, Invocation, ProgramFiles, Stdin};
use coracle_types::{Error, Excerpt, Input, Result};
use serde::Deserialize;
use tokio::process::Child;

use super::arguments::{RuntimeContainer, RuntimePaths, Verb, arguments};

/// The time limit of a call. Runtimes need less than a second, on a busy machine a few seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of an answer, in bytes.
const ANSWER: usize = 1 << 20;

/// Calls the runtime for one container.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeCalls {
    program: PathBuf,
    container: RuntimeContainer,
}

#[derive(Deserialize)]
struct RuntimeState {
    status: String,
    #[serde(default)]
    pid: u32,
}

#[derive(Deserialize)]
struct LogLine {
    #[serde(default)]
    level: String,
    #[serde(default)]
    msg: String,
}

impl RuntimeCalls {
    /// # Errors
    /// [`Error::NotInstalled`].
    pub(crate) fn new(container: RuntimeContainer) -> Result<Self> {
        Ok(Self { program: find_program(container.runtime.program())?, container })
    }

    /// Creates the container. Its first process waits until [`start`](Self::start); the files are its standard streams.
    pub(crate) async fn create(&self, files: ProgramFiles) -> Result<()> {
        let exit = process::run_with_files("create", &self.invocation(Verb::Create), files, TIMEOUT).await?;
        if exit == 0 { Ok(()) } else { Err(self.failure("create", exit, b"")) }
    }

    /// Lets the first process run.
    pub(crate) async fn start(&self) -> Result<()> {
        self.call("start", Verb::Start).await.map(drop)
    }

    /// The PID on the host of its first process, or of the program that is its kernel. `None` if it has ended.
    pub(crate) async fn pid(&self) -> Result<Option<u32>> {
        let answer = self.call("inspect", Verb::State).await?;
        let state: RuntimeState = serde_json::from_slice(&answer).map_err(|err| Error::Unreadable {
            verb: "inspect",
            detail: format!("{}: {err}", self.container.runtime),
        })?;
        Ok((state.status != "stopped" && state.pid != 0).then_some(state.pid))
    }

    /// Kills the container's processes and deletes it. Succeeds if the runtime does not know it.
    pub(crate) async fn delete(&self) -> Result<()> {
        match self.call("remove", Verb::Delete).await {
            Err(Error::Engine { .. }) if self.call("inspect", Verb::State).await.is_err() => Ok(()),
            done => done.map(drop),
        }
    }

    pub(crate) async fn pause(&self) -> Result<()> {
        self.call("pause", Verb::Pause).await.map(drop)
    }

    pub(crate) async fn resume(&self) -> Result<()> {
        self.call("resume", Verb::Resume).await.map(drop)
    }

    /// Starts a process in the container. Its streams are those of the runtime's program.
    pub(crate) fn exec(&self, process: &Path, pid_file: &Path, input: Option<Input>) -> Result<Child> {
        let stdin = input.map_or(Stdin::Empty, Stdin::Input);
        process::spawn(&self.invocation(Verb::Exec { process, pid_file }), stdin)
    }

    pub(crate) async fn kill_process(&self, pid: u32) -> Result<()> {
        self.call("exec", Verb::KillProcess { pid }).await.map(drop)
    }

    /// The last error that the runtime logged.
    pub(crate) fn logged_error(&self) -> Option<String> {
        last_error(&std::fs::read(&self.container.paths.log).unwrap_or_default())
    }

    /// The same calls with a separate log.
    pub(crate) fn with_log(self, log: PathBuf) -> Self {
        let paths = RuntimePaths { log, ..self.container.paths };
        Self { container: RuntimeContainer { paths, ..self.container }, ..self }
    }

    async fn call(&self, verb: &'static str, what: Verb<'_>) -> Result<Vec<u8>> {
        let done = process::run(verb, &self.invocation(what), Stdin::Empty, (TIMEOUT, ANSWER)).await?;
        if done.ok() {
            return Ok(done.stdout.bytes());
        }
        Err(self.failure(verb, done.exit, &done.stderr.bytes()))
    }

    fn failure(&self, verb: &'static str, exit: i32, stderr: &[u8]) -> Error {
        let message = self.logged_error().unwrap_or_else(|| String::from_utf8_lossy(stderr).into_owned());
        Error::Engine {
            verb,
            exit,
            excerpt: Excerpt::from_bytes(format!("{}: {message}", self.container.runtime).as_bytes()),
        }
    }

    fn invocation(&self, verb: Verb<'_>) -> Invocation {
        // Empties the log, which may have the error of an earlier call.
        let _ = File::create(&self.container.paths.log);
        let words = arguments(&self.container, verb);
        let env = BTreeMap::from([("PATH".to_owned(), OsString::from("/usr/sbin:/usr/bin:/sbin:/bin"))]);
        Invocation { env, ..Invocation::new(&self.program, words) }
    }
}

fn last_error(log: &[u8]) -> Option<String> {
    let lines = log.split(|it| *it == b'\n').rev();
    let mut read = lines.filter_map(|it| serde_json::from_slice::<LogLine>(it).ok());
    read.find(|it| matches!(it.level.as_str(), "error" | "fatal")).map(|it| it.msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_of_a_log_is_reported() {
        let log = br#"{"msg":"first","level":"error"}
{"msg":"runc create failed: no such file","level":"error","time":"x"}
{"msg":"cleaned up","level":"warning"}
cut {
"#;
        assert_eq!(last_error(log).as_deref(), Some("runc create failed: no such file"));
        assert_eq!(last_error(b""), None);
    }
}

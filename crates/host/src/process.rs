//! Starts programs on the host. No other module does.
//!
//! A program gets an absolute path, an explicit environment, its own process group (a Ctrl-C at the terminal is handled
//! by Coracle), and no inherited stdin. Both outputs are read concurrently, each into a bounded capture.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use coracle_types::{Capture, Error, ExecLimits, Input, Result};

pub use crate::drain::exit_of;
use crate::drain::{Drain, DrainOutcome, ProgramPipe, RunningProgram};
use crate::process_group::ProcessGroup;

/// A program to start, with everything that it can see.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// Absolute path.
    pub program: PathBuf,
    /// Its arguments.
    pub words: Vec<OsString>,
    /// Its whole environment.
    pub env: BTreeMap<String, OsString>,
    /// The directory that it starts in; without one, the directory of this process.
    pub dir: Option<PathBuf>,
}

impl Invocation {
    /// A program with arguments and an empty environment.
    pub fn new(program: impl Into<PathBuf>, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        Self { program: program.into(), words, env: BTreeMap::new(), dir: None }
    }

    /// Replaces the current process: for interactive programs, which need the user's terminal.
    ///
    /// # Errors
    /// Returns only if the program could not be started.
    pub fn replace_this_process(self) -> io::Error {
        use std::os::unix::process::CommandExt;
        self.command().into_std().args(&self.words).env_clear().envs(&self.env).exec()
    }

    /// Runs on the terminal of this process and waits: for programs that interact with the user.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub async fn run_on_terminal(self) -> Result<ExitStatus> {
        let mut command = self.command();
        command.args(&self.words).env_clear().envs(&self.env).kill_on_drop(true);
        command.status().await.map_err(|source| self.cannot_start(source))
    }

    #[expect(clippy::disallowed_methods, reason = "this file is the one place that starts programs")]
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }

    fn cannot_start(&self, source: io::Error) -> Error {
        Error::Spawn { program: self.program.display().to_string(), source }
    }
}

/// The standard input of a program.
#[derive(Debug)]
pub enum Stdin {
    /// Empty: end of file at once.
    Empty,
    /// A file, from its current offset.
    File(File),
    /// Bytes or a stream, written while the output is read.
    Input(Input),
    /// A pipe, which the caller finds in the handle.
    Open,
}

impl From<Input> for Stdin {
    fn from(input: Input) -> Self {
        Self::Input(input)
    }
}

/// A program that ended.
#[derive(Debug)]
pub struct ProgramOutput {
    /// Its exit status; 128 + n when signal n ended it.
    pub exit: i32,
    /// Its output.
    pub stdout: Capture,
    /// Its standard error.
    pub stderr: Capture,
}

impl ProgramOutput {
    /// Whether it exited 0.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.exit == 0
    }
}

/// Starts a program whose outputs the caller reads. It is killed when the handle is dropped; a [`ProcessGroup`] kills
/// what it started.
///
/// # Errors
/// If the program cannot be started.
pub fn spawn(invocation: &Invocation, stdin: Stdin) -> Result<Child> {
    tracing::debug!(program = %invocation.program.display(), words = ?invocation.words, "start");
    let (reads, input) = match stdin {
        Stdin::Empty => (Stdio::null(), None),
        Stdin::File(file) => (Stdio::from(file), None),
        Stdin::Input(input) => (Stdio::piped(), Some(input)),
        Stdin::Open => (Stdio::piped(), None),
    };
    let mut child = invocation
        .command()
        .args(&invocation.words)
        .env_clear()
        .envs(&invocation.env)
        .stdin(reads)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| invocation.cannot_start(source))?;
    if let Some(input) = input
        && let Some(pipe) = child.stdin.take()
    {
        tokio::spawn(feed(pipe, input));
    }
    Ok(child)
}

/// Starts a program that outlives this process: in its own process group, without outputs. Its standard input is the
/// file, which may be a socket or a pipe. Returns its pid.
///
/// # Errors
/// If the program cannot be started.
pub fn spawn_detached(invocation: &Invocation, stdin: File) -> Result<u32> {
    spawn_without_outputs(invocation, Stdio::from(stdin), |command| command.process_group(0))
}

/// Starts a program that outlives this process, without input and outputs. The program begins a session of its own,
/// which the leader of a process group could not. Returns its pid.
///
/// # Errors
/// If the program cannot be started.
pub fn spawn_daemon(invocation: &Invocation) -> Result<u32> {
    spawn_without_outputs(invocation, Stdio::null(), |command| command)
}

fn spawn_without_outputs(
    invocation: &Invocation,
    stdin: Stdio,
    group: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<u32> {
    tracing::debug!(program = %invocation.program.display(), words = ?invocation.words, "start detached");
    let mut command = invocation.command();
    command.args(&invocation.words).env_clear().envs(&invocation.env);
    command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
    let child = group(&mut command).spawn().map_err(|source| invocation.cannot_start(source))?;
    child.id().ok_or_else(|| invocation.cannot_start(io::Error::other("it has no number")))
}

/// Files for a program's standard streams.
#[derive(Debug)]
pub struct ProgramFiles {
    /// Standard input.
    pub stdin: File,
    /// Standard output.
    pub stdout: File,
    /// Standard error.
    pub stderr: File,
}

/// Runs a program to its end within `deadline`, for one that passes its streams on to a background process. Returns its
/// exit status. At the deadline, its process group is killed.
///
/// # Errors
/// [`Error::TimedOut`] with the name `verb`; [`Error::Spawn`].
pub async fn run_with_files(
    verb: &'static str,
    invocation: &Invocation,
    files: ProgramFiles,
    deadline: Duration,
) -> Result<i32> {
    tracing::debug!(program = %invocation.program.display(), words = ?invocation.words, "start with files");
    let mut child = invocation
        .command()
        .args(&invocation.words)
        .env_clear()
        .envs(&invocation.env)
        .stdin(files.stdin)
        .stdout(files.stdout)
        .stderr(files.stderr)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| invocation.cannot_start(source))?;
    let mut group = ProcessGroup::new(&child);
    let Ok(status) = tokio::time::timeout(deadline, group.wait(&mut child)).await else {
        group.end(&mut child).await;
        return Err(Error::TimedOut { verb, after: deadline });
    };
    status.map(exit_of).map_err(|source| Error::Host { what: format!("cannot wait for `{verb}`"), source })
}

/// Runs a program to its end within `deadline`, capturing `keep_bytes` of each output. At the deadline its process
/// group is ended, by TERM and then by KILL; cancelling kills it. Background processes may hold its pipes open: they
/// are read until they are silent.
///
/// # Errors
/// [`Error::TimedOut`] with the name `verb`; [`Error::Spawn`].
pub async fn run(
    verb: &'static str,
    invocation: &Invocation,
    stdin: Stdin,
    (deadline, keep_bytes): (Duration, usize),
) -> Result<ProgramOutput> {
    let mut child = spawn(invocation, stdin)?;
    let mut program = GroupLeader { group: Some(ProcessGroup::new(&child)), child: &mut child };
    let mut drain = Drain::new(&mut program, keep_bytes, None);
    let limits = ExecLimits { total: Some(deadline), ..ExecLimits::default() };
    match drain.until_end(&mut program, &limits, &CancellationToken::new()).await {
        DrainOutcome::Exited(exit) => {
            let (stdout, stderr) = drain.into_captures();
            Ok(ProgramOutput { exit, stdout, stderr })
        }
        DrainOutcome::Limit(_) | DrainOutcome::Cancelled => {
            program.end().await;
            Err(Error::TimedOut { verb, after: deadline })
        }
    }
}

/// A program, and its process group.
struct GroupLeader<'a> {
    /// Dropped before the program.
    group: Option<ProcessGroup>,
    child: &'a mut Child,
}

#[async_trait]
impl RunningProgram for GroupLeader<'_> {
    fn take_outputs(&mut self) -> (Option<ProgramPipe>, Option<ProgramPipe>) {
        self.child.take_outputs()
    }

    async fn wait_for_exit(&mut self) -> io::Result<i32> {
        let exit = self.child.wait_for_exit().await?;
        if let Some(group) = &mut self.group {
            group.ended();
        }
        Ok(exit)
    }

    async fn end(&mut self) {
        if let Some(group) = self.group.take() {
            group.end(self.child).await;
        }
    }
}

/// Writes all input to a program's pipe and closes it. A program may ignore the rest of its input, so a broken pipe is
/// not an error.
pub async fn feed(mut pipe: impl AsyncWrite + Unpin, input: Input) {
    let fed = match input {
        Input::Bytes(bytes) => pipe.write_all(&bytes).await,
        Input::Stream(mut stream) => tokio::io::copy(&mut stream, &mut pipe).await.map(drop),
    };
    if let Err(err) = fed {
        tracing::debug!(%err, "the program did not read all of its input");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Invocation {
        Invocation::new("/bin/sh", ["-c", script])
    }

    async fn ran(script: &str, stdin: Stdin) -> ProgramOutput {
        run("sh", &sh(script), stdin, (Duration::from_secs(30), 1000)).await.unwrap()
    }

    #[tokio::test]
    async fn a_program_inherits_no_variable_and_no_input() {
        let it = ran("env | grep -v -e ^PWD= -e ^SHLVL= -e ^_=; cat", Stdin::Empty).await;
        assert_eq!((it.stdout.text().as_str(), it.exit), ("", 0));
    }

    #[tokio::test]
    async fn a_flood_on_both_outputs_is_read_and_bounded() {
        let it = ran("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2", Stdin::Empty).await;
        assert_eq!((it.stdout.total_bytes(), it.stderr.total_bytes()), (3_000_000, 3_000_000));
        assert_eq!(it.stdout.bytes().len(), 1000);
    }

    #[tokio::test]
    async fn input_larger_than_a_pipe_is_written_while_output_is_read() {
        let it = ran("cat | wc -c", Stdin::Input(Input::Bytes(vec![b'x'; 1 << 20]))).await;
        assert_eq!(it.stdout.text().trim(), "1048576");
        assert_eq!(ran("exit 3", Stdin::Input(Input::Bytes(vec![b'x'; 1 << 20]))).await.exit, 3);
    }

    #[tokio::test]
    async fn a_program_has_the_files_as_its_streams() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let open = || File::options().append(true).create(true).open(&path).unwrap();
        let files = ProgramFiles { stdin: File::open("/dev/null").unwrap(), stdout: open(), stderr: open() };
        let script = sh("echo out; echo err >&2; exit 7");
        let exit = run_with_files("sh", &script, files, Duration::from_secs(30)).await.unwrap();
        assert_eq!((exit, std::fs::read_to_string(&path).unwrap().as_str()), (7, "out\nerr\n"));
    }

    #[tokio::test]
    async fn a_deadline_ends_the_program() {
        let late = run("sh", &sh("exec sleep 600"), Stdin::Empty, (Duration::from_millis(50), 10)).await;
        assert!(matches!(late, Err(Error::TimedOut { verb: "sh", .. })));
    }

    #[tokio::test]
    async fn a_daemon_that_holds_the_pipes_does_not_delay_the_answer() {
        let it = ran("sleep 600 & echo started; exit 4", Stdin::Empty).await;
        assert_eq!((it.stdout.text().as_str(), it.exit), ("started\n", 4));
    }

    #[tokio::test]
    async fn a_signal_is_reported_as_128_and_its_number() {
        assert_eq!(ran("kill -9 $$", Stdin::Empty).await.exit, 137);
    }
}

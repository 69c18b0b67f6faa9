//! Runs git in a container: as the agent, over the link, in a repository that the agent can write to.
//!
//! Git has only the agent's rights here. Settings of the repository are still overridden, so that reading it starts no
//! hook, filter or helper.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use coracle_client::{Link, WriteFile};
use coracle_host::hardened as git;
use coracle_lifecycle::{GitPlace, OutputReceiver, stream_stdout};
use coracle_protocol::{ErrorCode, FileEntry, FileKind, FileRef, UserSpec};
use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{Command, ContainerPath, Error, Exec, ExecOutput, Exit, Ids, Input, ProfileName, WorkflowId};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::leftover::Author;

/// Maximum size of names and numbers in git's output.
const MAX_OUTPUT: usize = 16 << 20;

/// The directory of a sandbox that contains its repository and its worktrees.
#[derive(Clone, Debug)]
pub struct Workdir {
    /// The sandbox's key, which names its records.
    pub key: String,
    /// The profile of its settings.
    pub profile: ProfileName,
    /// The link to its guest.
    pub link: Link,
    /// The owner of the files, who runs git.
    pub agent: Ids,
    /// The parent of repository and worktrees: `/workspace`.
    pub root: ContainerPath,
    /// The same directory on the host, if it is shared.
    pub shared: Option<PathBuf>,
    /// Timeout of a git command.
    pub git_timeout: Duration,
}

/// The repository of a git command. Names are relative, so that links above them do not matter.
#[derive(Clone, Debug)]
pub(super) enum GitDir {
    /// A bare repository below the root.
    Bare(String),
    /// A worktree, by its own directory in the repository, independent of its `.git` file.
    Tree(WorkflowId),
}

/// The result of a git command.
#[derive(Debug)]
pub(super) struct GitOutput {
    pub(super) exit: Exit,
    pub(super) stdout: Vec<u8>,
    /// Whether the output is complete.
    pub(super) whole: bool,
    /// Its size.
    pub(super) bytes: u64,
    pub(super) stderr: String,
}

/// Git in a repository.
#[derive(Clone, Debug)]
pub(super) struct Git<'a> {
    at: &'a Workdir,
    place: GitDir,
    /// Further variables of its environment.
    pub(super) env: BTreeMap<String, String>,
}

impl Workdir {
    /// The path of a workflow's worktree.
    ///
    /// # Panics
    /// Never: an id is a plain name.
    #[must_use]
    pub fn tree_path(&self, id: &WorkflowId) -> ContainerPath {
        self.path(&format!("worktrees/{id}")).expect("the id of a workflow is a plain name")
    }

    /// The arguments that name a workflow on the command line.
    #[must_use]
    pub fn workflow_arguments(&self, id: &WorkflowId) -> String {
        self.profile.workflow_arguments(id)
    }

    /// A path below the root, if it is valid: code inside may choose any name.
    pub(super) fn path(&self, below: &str) -> Result<ContainerPath> {
        self.root.join(below).map_err(|err| Failure::new(Code::SaveFailed, err.to_string()))
    }

    /// A file below the root with any name: the guest accepts more names than a [`ContainerPath`].
    pub(super) fn file(&self, below: &str) -> FileRef {
        let user = UserSpec::Ids { uid: self.agent.uid, gid: Some(self.agent.gid) };
        // With a trailing `/` a link would be followed.
        let parts = below.split('/').filter(|it| !it.is_empty() && *it != ".");
        let path =
            parts.fold(self.root.as_str().trim_end_matches('/').to_owned(), |path, part| format!("{path}/{part}"));
        FileRef { user, path: if path.is_empty() { "/".into() } else { path }, follow: false }
    }

    /// The entry at a path, without following a link.
    pub(super) async fn stat(&self, below: &str) -> Result<Option<FileEntry>> {
        match self.link.stat(self.file(below)).await {
            Ok(entry) => Ok(Some(entry)),
            Err(Error::Refused(fault)) if matches!(fault.code, ErrorCode::NotFound | ErrorCode::NoDirectory) => {
                Ok(None)
            }
            Err(err) => Err(lost(err)),
        }
    }

    pub(super) async fn is_dir(&self, below: &str) -> Result<bool> {
        Ok(self.stat(below).await?.is_some_and(|it| it.kind == FileKind::Dir))
    }

    pub(super) async fn write(&self, below: &str, text: &str) -> Result<()> {
        let content = Input::Bytes(text.as_bytes().to_vec());
        let at = self.file(below);
        let put = WriteFile { at, mode: Some(0o644), exact: false, parents: false, replace: true, content };
        self.link.put(put).await.map(drop).map_err(lost)
    }

    pub(super) async fn remove(&self, below: &str) -> Result<()> {
        match self.link.remove(self.file(below), true).await {
            Err(Error::Refused(fault)) if fault.code == ErrorCode::NotFound => Ok(()),
            other => other.map_err(lost),
        }
    }

    pub(super) fn git(&self, place: GitDir) -> Git<'_> {
        Git { at: self, place, env: BTreeMap::new() }
    }

    pub(super) fn repo(&self) -> Git<'_> {
        self.git(GitDir::Bare("repo.git".into()))
    }

    pub(super) fn tree(&self, id: &WorkflowId) -> Git<'_> {
        self.git(GitDir::Tree(id.clone()))
    }

    /// Runs another program, in the root.
    pub(super) async fn run(&self, argv: &[&str]) -> Result<GitOutput> {
        let argv = argv.iter().map(|it| (*it).to_owned()).collect();
        let exec = Exec::new(Command::Argv(argv), self.agent, self.root.clone());
        self.ended(exec).await
    }

    async fn ended(&self, mut exec: Exec) -> Result<GitOutput> {
        exec.limits.total = Some(self.git_timeout);
        GitOutput::new(self.link.exec(exec).await)
    }

    async fn streamed(&self, mut exec: Exec, mut into: Sink<'_>) -> Result<GitOutput> {
        exec.keep_bytes = 8192;
        exec.limits.total = Some(self.git_timeout);
        let missing = Failure::internal("some of its output is missing");
        let output = stream_stdout(&self.link, exec, &mut into, missing).await?;
        into.to.flush().await.map_err(Failure::internal)?;
        GitOutput::new(output)
    }
}

/// The destination of output, with its maximum size.
pub(super) struct Sink<'a> {
    pub(super) to: &'a mut (dyn AsyncWrite + Send + Unpin),
    pub(super) max_bytes: u64,
    /// Bytes written so far.
    pub(super) bytes: u64,
}

impl OutputReceiver for Sink<'_> {
    type Error = Failure;

    async fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.max_bytes {
            return Err(Failure::over_limit(format!("there are more than {} bytes", self.max_bytes)));
        }
        self.to.write_all(bytes).await.map_err(Failure::internal)
    }
}

impl Git<'_> {
    fn exec(&self, words: &[&str]) -> Exec {
        let (workdir, place) = match &self.place {
            GitDir::Bare(name) => (self.at.root.clone(), vec![format!("--git-dir={name}")]),
            GitDir::Tree(id) => {
                let git_dir = format!("--git-dir=../../repo.git/worktrees/{id}");
                (self.at.tree_path(id), vec![git_dir, "--work-tree=.".into()])
            }
        };
        let mut exec = GitPlace { user: self.at.agent, workdir, options: place }.exec(words);
        exec.env.extend(git::as_ourselves().map(|(name, value)| (name.to_owned(), value.to_owned())));
        exec.env.extend(self.env.clone());
        exec.keep_bytes = 2 * MAX_OUTPUT;
        exec
    }

    /// Runs it to its end.
    pub(super) async fn run(&self, words: &[&str]) -> Result<GitOutput> {
        known(self.at.ended(self.exec(words)).await?)
    }

    /// As [`run`](Self::run), with a limit of the captured output.
    pub(super) async fn run_keeping(&self, words: &[&str], keep_bytes: usize) -> Result<GitOutput> {
        let exec = Exec { keep_bytes: 2 * keep_bytes, ..self.exec(words) };
        known(self.at.ended(exec).await?)
    }

    pub(super) async fn run_into(&self, words: &[&str], into: Sink<'_>) -> Result<GitOutput> {
        known(self.at.streamed(self.exec(words), into).await?)
    }

    pub(super) async fn fed(&self, words: &[&str], stdin: Input) -> Result<GitOutput> {
        let exec = Exec { stdin: Some(stdin), ..self.exec(words) };
        known(self.at.ended(exec).await?)
    }

    /// Returns its output. Fails if git does.
    pub(super) async fn printed(&self, words: &[&str]) -> Result<Vec<u8>> {
        self.run(words).await?.good()
    }

    /// Resolves a revision to a commit. `None` if there is none; an error if git fails or is killed.
    pub(super) async fn commit(&self, text: &str) -> Result<Option<String>> {
        let what = format!("{text}^{{commit}}");
        let result = self.run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &what]).await?;
        match result.exit {
            Exit::Code(0) => Ok(super::parse::oid(&String::from_utf8_lossy(&result.stdout)).map(str::to_owned)),
            Exit::Code(1) => Ok(None),
            _ => Err(result.failure()),
        }
    }

    /// As [`commit`](Self::commit), for a revision from a caller, or a repository that the agent may have broken:
    /// `None` also if git cannot read it.
    pub(super) async fn find_commit(&self, text: &str) -> Result<Option<String>> {
        match self.commit(text).await {
            Err(failure) if is_git_error(&failure) => Ok(None),
            found => found,
        }
    }

    /// Sets the author of commits.
    pub(super) fn authored(mut self, author: &Author) -> Self {
        let Author { name, email } = author;
        let own = [("GIT_AUTHOR_NAME", name), ("GIT_AUTHOR_EMAIL", email)];
        self.env.extend(own.map(|(name, value)| (name.to_owned(), value.clone())));
        self
    }

    /// Disables the repository's filters.
    pub(super) async fn without_filters(mut self) -> Result<Self> {
        let result = self.run(git::LIST_FILTERS).await?;
        self.env.extend(git::without_filters(&result.stdout));
        Ok(self)
    }
}

impl GitOutput {
    fn new(ended: coracle_types::Result<ExecOutput>) -> Result<Self> {
        let output = ended.map_err(|err| match err {
            Error::NoSuchPath(path) => missing(&path),
            err => lost(err),
        })?;
        let whole = output.stdout.left_out() == 0;
        let mut stdout = output.stdout.head().to_vec();
        if whole {
            stdout.extend(output.stdout.tail());
        }
        Ok(Self { exit: output.exit, stdout, whole, bytes: output.stdout.total_bytes(), stderr: output.stderr.text() })
    }

    pub(super) fn ok(&self) -> bool {
        self.exit == Exit::Code(0)
    }

    /// Returns its complete output.
    pub(super) fn good(self) -> Result<Vec<u8>> {
        match self.exit {
            Exit::Code(0) if self.whole => Ok(self.stdout),
            Exit::Code(0) => Err(Failure::over_limit("git inside printed more than can be read")),
            _ => Err(self.failure()),
        }
    }

    /// Fails unless it succeeded; its output was written elsewhere.
    pub(super) fn done(self) -> Result<()> {
        if self.ok() { Ok(()) } else { Err(self.failure()) }
    }

    pub(super) fn failure(&self) -> Failure {
        let stderr = coracle_types::Excerpt::from_bytes(self.stderr.as_bytes()).to_string();
        match self.exit {
            Exit::TimedOut(_) => Failure::new(Code::CommandTimedOut, "git inside took too long"),
            Exit::Code(code) => Failure::new(Code::CommandFailed, format!("git inside failed: {stderr}"))
                .detail("exit_code", code)
                .detail("stderr", stderr),
            _ => Failure::new(Code::CommandFailed, format!("git inside was ended: {stderr}")),
        }
    }
}

/// Converts the error of a broken link.
pub(super) fn lost(err: Error) -> Failure {
    match err {
        Error::Refused(fault) if fault.code == ErrorCode::NoProgram => no_git(),
        Error::GuestLost { .. } | Error::NotRunning { .. } | Error::LifetimeOver { .. } | Error::NodeLost { .. } => {
            Failure::new(Code::SandboxLost, err.to_string())
        }
        err => Failure::internal(err),
    }
}

/// Whether git inside exited with an error: it was not killed, and the link did not break.
pub(super) fn is_git_error(failure: &Failure) -> bool {
    failure.code == Code::CommandFailed && failure.details.contains_key("exit_code")
}

fn no_git() -> Failure {
    Failure::new(Code::GitMissing, "There is no git in the container.").hint("use an image that has git")
}

fn missing(path: &ContainerPath) -> Failure {
    Failure::new(Code::WorktreeMissing, format!("There is no `{path}` in the container."))
}

/// Exit status 127 means that the program is missing, as in a shell.
fn known(result: GitOutput) -> Result<GitOutput> {
    if result.exit == Exit::Code(127) { Err(no_git()) } else { Ok(result) }
}

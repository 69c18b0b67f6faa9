//! Git in a container: as the agent, over the link, in a repository that the agent can write.
//!
//! Git has no more rights here than the agent has. Settings of the repository are still overruled, so that reading it starts
//! no hook, filter or helper.

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

/// Bytes of names and numbers that are read.
const MAX_TOLD: usize = 16 << 20;

/// The directory of a sandbox that has its repository and its worktrees.
#[derive(Clone, Debug)]
pub struct Workdir {
    /// The sandbox's key, which names its records.
    pub key: String,
    /// The profile that its settings are from.
    pub profile: ProfileName,
    /// To its guest.
    pub link: Link,
    /// Owns the files, and runs git.
    pub agent: Ids,
    /// What repository and worktrees lie in: `/workspace`.
    pub root: ContainerPath,
    /// The same directory on this host, where it is one.
    pub shared: Option<PathBuf>,
    /// The limit of one git.
    pub git_timeout: Duration,
}

/// Which repository a command of git's is about. Names are relative, so that no link above them matters.
#[derive(Clone, Debug)]
pub(super) enum GitDir {
    /// A bare repository below the root.
    Bare(String),
    /// A worktree, by its own directory in the repository: what its `.git` file says does not matter.
    Tree(WorkflowId),
}

/// The result of a git command.
#[derive(Debug)]
pub(super) struct GitOutput {
    pub(super) exit: Exit,
    pub(super) stdout: Vec<u8>,
    /// Nothing of the output is missing.
    pub(super) whole: bool,
    /// Its length.
    pub(super) bytes: u64,
    pub(super) stderr: String,
}

/// Git at a place.
#[derive(Clone, Debug)]
pub(super) struct Git<'a> {
    at: &'a Workdir,
    place: GitDir,
    /// More of its environment.
    pub(super) env: BTreeMap<String, String>,
}

impl Workdir {
    /// Where a workflow's worktree is.
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

    /// A file below the root by any name: the guest accepts more names than a [`ContainerPath`].
    pub(super) fn file(&self, below: &str) -> FileRef {
        let user = UserSpec::Ids { uid: self.agent.uid, gid: Some(self.agent.gid) };
        // Behind a last `/` a link would be followed.
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

/// Where output goes, and how much of it.
pub(super) struct Sink<'a> {
    pub(super) to: &'a mut (dyn AsyncWrite + Send + Unpin),
    pub(super) max_bytes: u64,
    /// Bytes that it took.
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
        exec.keep_bytes = 2 * MAX_TOLD;
        exec
    }

    /// Runs it to its end.
    pub(super) async fn run(&self, words: &[&str]) -> Result<GitOutput> {
        known(self.at.ended(self.exec(words)).await?)
    }

    /// As [`run`](Self::run), keeping at most so many bytes of what it prints.
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

    /// What it printed; it has to end well.
    pub(super) async fn printed(&self, words: &[&str]) -> Result<Vec<u8>> {
        self.run(words).await?.good()
    }

    /// The commit that a revision names. `None` if there is none: a git that fails or is killed may hide one.
    pub(super) async fn commit(&self, text: &str) -> Result<Option<String>> {
        let what = format!("{text}^{{commit}}");
        let told = self.run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &what]).await?;
        match told.exit {
            Exit::Code(0) => Ok(super::parse::oid(&String::from_utf8_lossy(&told.stdout)).map(str::to_owned)),
            Exit::Code(1) => Ok(None),
            _ => Err(told.failure()),
        }
    }

    /// As [`commit`](Self::commit), for a revision that a caller wrote, or a repository that the agent may have broken:
    /// `None` also if git cannot read it.
    pub(super) async fn find_commit(&self, text: &str) -> Result<Option<String>> {
        match self.commit(text).await {
            Err(failure) if is_git_error(&failure) => Ok(None),
            found => found,
        }
    }

    /// With an author for commits.
    pub(super) fn authored(mut self, author: &Author) -> Self {
        let Author { name, email } = author;
        let own = [("GIT_AUTHOR_NAME", name), ("GIT_AUTHOR_EMAIL", email)];
        self.env.extend(own.map(|(name, value)| (name.to_owned(), value.clone())));
        self
    }

    /// With the repository's filters disabled.
    pub(super) async fn without_filters(mut self) -> Result<Self> {
        let told = self.run(git::ASK_FILTERS).await?;
        self.env.extend(git::without_filters(&told.stdout));
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

    /// Its output, of which nothing is missing.
    pub(super) fn good(self) -> Result<Vec<u8>> {
        match self.exit {
            Exit::Code(0) if self.whole => Ok(self.stdout),
            Exit::Code(0) => Err(Failure::over_limit("git inside printed more than can be read")),
            _ => Err(self.failure()),
        }
    }

    /// It ended well; its output went elsewhere.
    pub(super) fn done(self) -> Result<()> {
        if self.ok() { Ok(()) } else { Err(self.failure()) }
    }

    pub(super) fn failure(&self) -> Failure {
        let said = coracle_types::Excerpt::from_bytes(self.stderr.as_bytes()).to_string();
        match self.exit {
            Exit::TimedOut(_) => Failure::new(Code::CommandTimedOut, "git inside took too long"),
            Exit::Code(code) => Failure::new(Code::CommandFailed, format!("git inside failed: {said}"))
                .detail("exit_code", code)
                .detail("stderr", said),
            _ => Failure::new(Code::CommandFailed, format!("git inside was ended: {said}")),
        }
    }
}

/// The failure that a broken link means.
pub(super) fn lost(err: Error) -> Failure {
    match err {
        Error::Refused(fault) if fault.code == ErrorCode::NoProgram => no_git(),
        Error::GuestLost { .. } | Error::NotRunning { .. } | Error::LifetimeOver { .. } | Error::NodeLost { .. } => {
            Failure::new(Code::SandboxLost, err.to_string())
        }
        err => Failure::internal(err),
    }
}

/// Whether git inside ended by itself with an error: it was not killed, and the link did not break.
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
fn known(told: GitOutput) -> Result<GitOutput> {
    if told.exit == Exit::Code(127) { Err(no_git()) } else { Ok(told) }
}

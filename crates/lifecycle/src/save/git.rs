//! The status of a work tree in a container, and bundles of its commits.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_client::Link;
use coracle_host::hardened as git;
use coracle_types::{ContainerPath, Exit, Ids};
use tokio::time::Instant;

use super::error::SaveError;
use super::guest_git::{GitPlace, OutputReceiver, stream_stdout};
use super::repo_status::RepoStatus;
use super::writer::PartWriter;

/// For one command.
const TIME_LIMIT: Duration = Duration::from_secs(25);

/// What is on a remote, too, gets this part of the time that is left, so that there is enough for what is nowhere else.
const SHARE_OF_WHOLE: u32 = 4;

/// Bytes of names that are read.
const MAX_STATUS: usize = 16 << 20;

/// The repository is named, so that its owner does not matter, and none further up is read in its place. One thread saves
/// memory.
const OPTIONS: &[&str] = &["--git-dir=.git", "--work-tree=.", "-c", "pack.threads=1"];

/// A work tree in a container.
#[derive(Debug)]
pub(super) struct Git<'a> {
    link: &'a Link,
    user: Ids,
    path: &'a ContainerPath,
    until: Instant,
    /// Overrules the repository's filters, which would run programs.
    filters: BTreeMap<String, String>,
}

impl<'a> Git<'a> {
    pub(super) fn new(link: &'a Link, user: Ids, path: &'a ContainerPath, until: Instant) -> Self {
        Self { link, user, path, until, filters: BTreeMap::new() }
    }

    /// The status of the tree; `None` if git is missing or fails.
    pub(super) async fn status(&mut self) -> Result<Option<RepoStatus>, SaveError> {
        let mut names = BoundedOutput::default();
        match self.run(git::LIST_FILTERS, &mut names).await? {
            // 1: the repository has none.
            Exit::Code(0 | 1) => self.filters = git::without_filters(&names.0),
            _ => return Ok(None),
        }
        let (mut output, mut commits) = (BoundedOutput::default(), BoundedOutput::default());
        let unpushed = [
            &["rev-list", "--max-count=1", "--ignore-missing", "HEAD", "--branches", git::STASH][..],
            &["--not", "--remotes"],
        ]
        .concat();
        let (status, counted) =
            tokio::join!(self.run(RepoStatus::COMMAND, &mut output), self.run(&unpushed, &mut commits));
        let (Exit::Code(0), counted) = (status?, counted?) else { return Ok(None) };
        let mut status = RepoStatus::parse(&output.0);
        // If they cannot be counted, there may be some.
        status.unpushed = counted != Exit::Code(0) || !commits.0.is_empty();
        Ok(Some(status))
    }

    /// All refs with their history. Whether it worked, in a part of the time.
    pub(super) async fn whole_bundle(&self, into: &mut PartWriter) -> Result<bool, SaveError> {
        let limit = self.time_left() / SHARE_OF_WHOLE;
        let exit = self.run_within(limit, &["bundle", "create", "-", "--all"], into).await?;
        Ok(exit == Exit::Code(0) && into.looks_right())
    }

    /// Refs with what is on no remote.
    pub(super) async fn new_bundle(&self, status: &RepoStatus, into: &mut PartWriter) -> Result<bool, SaveError> {
        let mut words = vec!["bundle", "create", "-", "--branches", "--tags", git::STASH];
        words.extend(status.head.as_ref().map(|_| "HEAD"));
        words.extend(["--not", "--remotes"]);
        self.fill(&words, into).await
    }

    /// What is staged, as a patch.
    pub(super) async fn staged(&self, into: &mut PartWriter) -> Result<bool, SaveError> {
        let words = ["diff", "--cached", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv"];
        self.fill(&[&words[..], &["--no-renames"]].concat(), into).await
    }

    async fn fill(&self, words: &[&str], into: &mut PartWriter) -> Result<bool, SaveError> {
        let exit = self.run(words, into).await?;
        Ok(exit == Exit::Code(0) && into.looks_right())
    }

    async fn run<R>(&self, args: &[&str], receiver: &mut R) -> Result<Exit, SaveError>
    where
        R: OutputReceiver<Error = SaveError>,
    {
        self.run_within(self.time_left(), args, receiver).await
    }

    fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Runs git, and passes on what it prints. A receiver that fails ends it.
    async fn run_within<R>(&self, limit: Duration, args: &[&str], receiver: &mut R) -> Result<Exit, SaveError>
    where
        R: OutputReceiver<Error = SaveError>,
    {
        let options = OPTIONS.iter().map(|it| (*it).to_owned()).collect();
        let mut exec = GitPlace { user: self.user, workdir: self.path.clone(), options }.exec(args);
        exec.env.extend(self.filters.clone());
        exec.limits.total = Some(limit.min(TIME_LIMIT));
        exec.limits.grace = Duration::ZERO;
        exec.keep_bytes = 4096;
        let missing = SaveError::Invalid("some of its output is missing");
        match stream_stdout(self.link, exec, receiver, missing).await? {
            Ok(output) => Ok(output.exit),
            // The directory is gone, or the user does not exist.
            Err(coracle_types::Error::NoSuchPath(_) | coracle_types::Error::Refused(_)) => Ok(Exit::Code(127)),
            Err(err) => Err(SaveError::Inside(err)),
        }
    }
}

/// What git prints, if it is not too much.
#[derive(Default)]
struct BoundedOutput(Vec<u8>);

impl OutputReceiver for BoundedOutput {
    type Error = SaveError;

    async fn receive(&mut self, bytes: &[u8]) -> Result<(), SaveError> {
        if self.0.len() + bytes.len() > MAX_STATUS {
            return Err(SaveError::Invalid("git names more files than can be looked at"));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

impl OutputReceiver for PartWriter {
    type Error = SaveError;

    async fn receive(&mut self, bytes: &[u8]) -> Result<(), SaveError> {
        self.write(bytes)
    }
}

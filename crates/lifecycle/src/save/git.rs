//! What git inside tells of a work tree, and what it packs.
//!
//! The repository is somebody else's work, and so may git be: it runs as the exec user, who could run it at any time, with
//! a limit, and what it prints is data. Its settings are overruled where they would run programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use coracle_runtime::archive::plain_name;
use coracle_runtime::git::{self, Side};
use coracle_runtime::link::Link;
use coracle_runtime::{Command, ContainerPath, Exec, Exit, Ids, Stream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::error::SaveError;
use super::writer::PartWriter;

/// For one command.
const AT_MOST: Duration = Duration::from_secs(25);

/// Bytes of names that are read.
const MAX_STATUS: usize = 16 << 20;

/// The repository is named, so that none further up is asked in its place, and its owner does not matter.
const PLACE: &[&str] = &["--no-pager", "--git-dir=.git", "--work-tree=."];

/// Beside those of every git: it has little memory.
const SETTINGS: &[&str] = &["pack.threads=1"];

/// A work tree that git inside is asked about.
#[derive(Debug)]
pub(super) struct Git<'a> {
    link: &'a Link,
    user: Ids,
    path: &'a ContainerPath,
    until: Instant,
    /// Overrules the repository's filters, which would run programs.
    filters: BTreeMap<String, String>,
}

/// How a work tree stands.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RepoStatus {
    /// The commit that is checked out.
    pub(super) head: Option<String>,
    pub(super) branch: Option<String>,
    /// Something is staged.
    pub(super) staged: bool,
    /// Files that differ from the commit, and those that are not tracked. Relative to the tree.
    pub(super) changed: Vec<String>,
    /// Directories that are repositories of their own, or hold nothing that git would name.
    pub(super) nested: Vec<String>,
    pub(super) deleted: Vec<String>,
    /// Names that no text can say.
    pub(super) odd: Vec<String>,
    /// Commits are on no remote.
    pub(super) unpushed: bool,
}

impl RepoStatus {
    /// Nothing would be lost.
    pub(super) fn is_clean(&self) -> bool {
        let files = [&self.changed, &self.nested, &self.deleted, &self.odd];
        !self.staged && !self.unpushed && files.iter().all(|it| it.is_empty())
    }
}

impl<'a> Git<'a> {
    pub(super) fn new(link: &'a Link, user: Ids, path: &'a ContainerPath, until: Instant) -> Self {
        Self { link, user, path, until, filters: BTreeMap::new() }
    }

    /// How the tree stands; `None` when git cannot tell, or is not there.
    pub(super) async fn standing(&mut self) -> Result<Option<RepoStatus>, SaveError> {
        let mut names = Vec::new();
        match self.run(git::ASK_FILTERS, |it| bounded(&mut names, it)).await? {
            // 1: there are none.
            Exit::Code(0 | 1) => self.filters = git::without_filters(&names),
            _ => return Ok(None),
        }
        let (mut told, mut commits) = (Vec::new(), Vec::new());
        let words = ["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--ignore-submodules=all"];
        let unpushed = [
            &["rev-list", "--max-count=1", "--ignore-missing", "HEAD", "--branches", git::STASH][..],
            &["--not", "--remotes"],
        ]
        .concat();
        let (status, counted) = tokio::join!(
            self.run(&words, |it| bounded(&mut told, it)),
            self.run(&unpushed, |it| bounded(&mut commits, it)),
        );
        let (Exit::Code(0), counted) = (status?, counted?) else { return Ok(None) };
        let mut standing = read(&told);
        // What cannot be counted may be something.
        standing.unpushed = counted != Exit::Code(0) || !commits.is_empty();
        Ok(Some(standing))
    }

    /// All refs with their history. Whether it worked.
    pub(super) async fn whole_bundle(&self, into: &mut PartWriter) -> Result<bool, SaveError> {
        self.fill(&["bundle", "create", "-", "--all"], into).await
    }

    /// Refs with what is on no remote.
    pub(super) async fn new_bundle(&self, standing: &RepoStatus, into: &mut PartWriter) -> Result<bool, SaveError> {
        let mut words = vec!["bundle", "create", "-", "--branches", "--tags", git::STASH];
        words.extend(standing.head.as_ref().map(|_| "HEAD"));
        words.extend(["--not", "--remotes"]);
        self.fill(&words, into).await
    }

    /// What is staged, as a patch.
    pub(super) async fn staged(&self, into: &mut PartWriter) -> Result<bool, SaveError> {
        let words = ["diff", "--cached", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv"];
        self.fill(&[&words[..], &["--no-renames"]].concat(), into).await
    }

    async fn fill(&self, words: &[&str], into: &mut PartWriter) -> Result<bool, SaveError> {
        let exit = self.run(words, |it| into.write(it)).await?;
        Ok(exit == Exit::Code(0) && into.looks_right())
    }

    /// Runs git and takes what it prints, as it comes. A taker that fails ends it.
    async fn run(
        &self,
        words: &[&str],
        mut take: impl FnMut(&[u8]) -> Result<(), SaveError>,
    ) -> Result<Exit, SaveError> {
        let (live, mut chunks) = mpsc::channel(8);
        let settings = git::settings(Side::Inside).chain(SETTINGS.iter().copied()).flat_map(|it| ["-c", it]);
        let words = ["git"].into_iter().chain(PLACE.iter().copied()).chain(settings).chain(words.iter().copied());
        let argv = words.map(str::to_owned).collect();
        let mut exec = Exec::new(Command::Argv(argv), self.user, self.path.clone());
        let env = git::environment(Side::Inside);
        exec.env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        exec.env.extend(self.filters.clone());
        exec.limits.total = Some(self.until.saturating_duration_since(Instant::now()).min(AT_MOST));
        exec.limits.grace = Duration::ZERO;
        exec.keep_bytes = 4096;
        exec.live = Some(live);
        let cancel = exec.cancel.clone();
        let taking = async {
            let (mut taken, mut done) = (0, Ok(()));
            while let Some(chunk) = chunks.recv().await {
                if chunk.stream != Stream::Stdout || done.is_err() {
                    continue;
                }
                let gap = chunk.offset != taken;
                taken += chunk.bytes.len() as u64;
                done = if gap { Err(SaveError::Invalid("some of its output is missing")) } else { take(&chunk.bytes) };
                if done.is_err() {
                    cancel.cancel();
                }
            }
            done
        };
        let (output, taken) = tokio::join!(self.link.exec(exec), taking);
        taken?;
        match output {
            Ok(output) => Ok(output.exit),
            // What cannot be run in a directory that went, or by a user that is none, is not git's to tell.
            Err(coracle_runtime::Error::NoSuchPath(_) | coracle_runtime::Error::Refused(_)) => Ok(Exit::Code(127)),
            Err(err) => Err(SaveError::Inside(err)),
        }
    }
}

fn bounded(into: &mut Vec<u8>, bytes: &[u8]) -> Result<(), SaveError> {
    if into.len() + bytes.len() > MAX_STATUS {
        return Err(SaveError::Invalid("git names more files than can be looked at"));
    }
    into.extend_from_slice(bytes);
    Ok(())
}

/// Reads `git status --porcelain=v2 --branch -z`. What it says may be anything.
fn read(told: &[u8]) -> RepoStatus {
    let mut standing = RepoStatus::default();
    let mut records = told.split(|it| *it == 0);
    while let Some(record) = records.next() {
        let Some((kind, rest)) = record.split_first_chunk::<2>() else { continue };
        match kind {
            b"# " => header(&mut standing, rest),
            b"? " => untracked(&mut standing, rest),
            // XY, submodule, three modes, two objects, name.
            b"1 " => tracked(&mut standing, rest, (8, 4)),
            b"2 " => {
                tracked(&mut standing, rest, (9, 4));
                // The name that it had.
                records.next();
            }
            // XY, submodule, four modes, three objects, name.
            b"u " => tracked(&mut standing, rest, (10, 5)),
            _ => {}
        }
    }
    standing
}

fn header(standing: &mut RepoStatus, text: &[u8]) {
    let Some((name, value)) = std::str::from_utf8(text).ok().and_then(|it| it.split_once(' ')) else { return };
    let value = Some(value.to_owned()).filter(|it| it.len() <= 1024);
    match name {
        "branch.oid" => standing.head = value.filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit())),
        "branch.head" => standing.branch = value.filter(|it| it != "(detached)"),
        _ => {}
    }
}

fn untracked(standing: &mut RepoStatus, name: &[u8]) {
    match (name.strip_suffix(b"/"), plain(name)) {
        (_, Err(odd)) => standing.odd.push(odd),
        (Some(_), Ok(name)) => standing.nested.push(name),
        (None, Ok(name)) => standing.changed.push(name),
    }
}

/// `at` is which field has the name, and which the mode of the file in the tree.
fn tracked(standing: &mut RepoStatus, record: &[u8], at: (usize, usize)) {
    let fields: Vec<_> = record.splitn(at.0, |it| *it == b' ').collect();
    let (Some([x, _]), Some(mode), Some(name)) =
        (fields.first().and_then(|it| it.first_chunk::<2>()), fields.get(at.1), fields.get(at.0 - 1))
    else {
        return;
    };
    standing.staged |= *x != b'.';
    match plain(name) {
        Err(odd) => standing.odd.push(odd),
        Ok(name) if *mode == b"000000" => standing.deleted.push(name),
        Ok(name) => standing.changed.push(name),
    }
}

fn plain(name: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(name).ok();
    let name = || String::from_utf8_lossy(name).escape_debug().to_string();
    text.and_then(|it| plain_name(Path::new(it))).filter(|it| !it.is_empty()).ok_or_else(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_whatever_names_there_are() {
        let told = [
            "# branch.oid 0123456789012345678901234567890123456789",
            "# branch.head main",
            "# branch.ab +1 -0",
            "1 .M N... 100644 100644 100644 aa aa a b\nc",
            "1 A. N... 000000 100644 100644 00 bb staged",
            "1 .D N... 100644 100644 000000 aa aa gone",
            "1 D. N... 100644 000000 000000 aa 00 gone too",
            "2 R. N... 100644 100644 100644 aa aa R100 new",
            "old",
            "u UU N... 100644 100644 100644 100644 aa bb cc both",
            "? dir/own",
            "? nested/",
            "? ../../etc/shadow",
            "? /etc/shadow",
            "1 x",
            "nonsense",
            "",
        ];
        let standing = read(told.join("\0").as_bytes());
        assert_eq!(standing.head.as_deref().map(str::len), Some(40));
        assert_eq!(standing.branch.as_deref(), Some("main"));
        assert_eq!(standing.changed, ["a b\nc", "staged", "new", "both", "dir/own"]);
        assert_eq!(
            (standing.deleted, standing.nested),
            (vec!["gone".into(), "gone too".into()], vec!["nested".into()])
        );
        assert_eq!(standing.odd, ["../../etc/shadow", "/etc/shadow"]);
        assert!(standing.staged);
    }

    #[test]
    fn a_tree_before_its_first_commit_has_no_head() {
        let standing = read(b"# branch.oid (initial)\0# branch.head main\0? \xff\0");
        assert_eq!((standing.head, standing.odd.len(), standing.staged), (None, 1, false));
    }
}

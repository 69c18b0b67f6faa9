//! Git's ignore rules, read by descriptor.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::FileType;

use super::dir::join;
use super::parent::enter;
use super::resolve::{content, open_entry};

/// Longest file of rules in bytes; a longer one is ignored.
const MAX_RULES: u64 = 256 << 10;

/// The rules of all directories from the workspace to the current directory of a walk.
#[derive(Debug, Default)]
pub(crate) struct IgnoreRules {
    /// Path of the walk's start, relative to the workspace.
    base: Vec<u8>,
    levels: Vec<DirectoryRules>,
}

#[derive(Debug)]
struct DirectoryRules {
    /// Length of the directory's path, relative to the workspace.
    before: usize,
    /// Rules of `.git/info/exclude`, then those of `.gitignore`.
    rules: Vec<Gitignore>,
    /// Whether a repository begins here: rules of directories above it do not apply.
    repository: bool,
}

impl IgnoreRules {
    /// The rules for a walk that starts at that path.
    pub(crate) fn at(root: &Arc<OwnedFd>, base: &[u8]) -> Self {
        let mut ignored = Self { base: Vec::new(), levels: Vec::new() };
        let (mut dir, mut path) = (root.clone(), Vec::new());
        for name in base.split(|it| *it == b'/').filter(|it| !it.is_empty()) {
            ignored.enter(&dir, &path);
            // The walk itself reports a directory that cannot be opened.
            let Ok(next) = enter(dir.as_fd(), name) else { break };
            (dir, path) = (next.into(), join(&path, name));
        }
        ignored.base = base.to_vec();
        ignored
    }

    /// Adds the rules of a directory that the walk enters.
    pub(crate) fn enter(&mut self, dir: &OwnedFd, path: &[u8]) {
        let path = self.real(path);
        let mut rules = Vec::new();
        let git = enter(dir.as_fd(), b".git");
        let repository = git.is_ok() || matches!(open_entry(dir, b".git"), Ok(Some(_)));
        let info = git.and_then(|it| enter(it.as_fd(), b"info"));
        rules.extend(info.ok().and_then(|it| read(&it, b"exclude")));
        rules.extend(read(dir, b".gitignore"));
        self.levels.push(DirectoryRules { before: path.len(), rules, repository });
    }

    pub(crate) fn leave_directory(&mut self) {
        self.levels.pop();
    }

    /// Whether an entry is ignored. The nearest matching rule decides.
    pub(crate) fn ignores(&self, path: &[u8], is_dir: bool) -> bool {
        let path = self.real(path);
        for level in self.levels.iter().rev() {
            let rest = &path[level.before.min(path.len())..];
            let rest = Path::new(OsStr::from_bytes(rest.strip_prefix(b"/").unwrap_or(rest)));
            for rules in level.rules.iter().rev() {
                match rules.matched(rest, is_dir) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            if level.repository {
                break;
            }
        }
        false
    }

    fn real(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() { self.base.clone() } else { join(&self.base, path) }
    }
}

fn read(dir: &OwnedFd, name: &[u8]) -> Option<Gitignore> {
    let found = open_entry(dir, name).ok()?.filter(|it| it.is(FileType::RegularFile))?;
    let text = content(&found.read().ok()?, MAX_RULES).ok()??;
    let mut builder = GitignoreBuilder::new("");
    for line in String::from_utf8_lossy(&text).lines() {
        // git also skips a rule that it cannot parse.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok()
}

//! A repository in a directory of this host: what is known of it before git reads it, and why git cannot.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use coracle_runtime::host::git::{GitProgram, HostGit as _, is_own, version_of};
use coracle_runtime::host::process::{ProgramOutput, Stdin};
use coracle_runtime::{Excerpt, shell_word};

use super::{SOON, WorktreeManager};
use crate::repository_source::{RepositoryDirs, checked_repository};
use crate::{Code, Failure, Result};

/// Lets git read a directory whoever owns it: [`WorktreeManager::local_source`] compares the owner before.
const ANY_OWNER: &str = "[safe]\n\tdirectory = *\n";

/// A repository that git may read.
#[derive(Debug)]
pub(super) struct LocalSource {
    dir: PathBuf,
    pub(super) git_dir: PathBuf,
    common_dir: PathBuf,
    /// Its own configuration: keys in lower case but for the names in the middle, and values.
    config: Vec<(String, String)>,
}

impl WorktreeManager {
    /// Checks a repository: that all that git reads of it lies where it may, and that the user trusts its owner.
    ///
    /// # Errors
    /// `policy_denied` outside of what the user allows, and for a foreign owner; `fetch_failed` for what is no repository.
    pub(super) async fn local_source(&self, dir: &Path) -> Result<LocalSource> {
        let roots = &self.settings.allow_roots;
        let common_dir = checked_repository(dir, roots)?;
        let git_dir = RepositoryDirs::find(dir, roots)?.map_or_else(|| common_dir.clone(), |place| place.git_dir);
        let sudo_uid = self.settings.person.get("SUDO_UID").map(OsString::as_os_str);
        let foreign = [dir, &git_dir].into_iter().find(|place| !is_own(place, sudo_uid)).map(Path::to_owned);
        if let Some(foreign) = foreign
            && !self.trusts(dir).await
        {
            return Err(foreign_owner(dir, &foreign));
        }
        let config = self.config_of(&common_dir.join("config")).await?;
        Ok(LocalSource { dir: dir.to_owned(), git_dir, common_dir, config })
    }

    /// Whether `safe.directory` of the user's own configuration names it.
    async fn trusts(&self, dir: &Path) -> bool {
        let printed = self.user_config().await;
        let mut trusted = false;
        for value in printed.split('\0').filter_map(|entry| entry.strip_prefix("safe.directory\n")) {
            // An empty value forgets those before.
            trusted = !value.is_empty() && (trusted || is_named(dir, value));
        }
        trusted
    }

    /// The user's own configuration of git, as `git config --list -z` prints it.
    pub(super) async fn user_config(&self) -> String {
        let path = |name: &str| self.settings.person.get(name).map(PathBuf::from).filter(|it| it.is_absolute());
        let Some(home) = path("HOME") else { return String::new() };
        let git = GitProgram::with_program(self.git.program().await.ok().map(Path::to_owned));
        let printed = git.global_config(&home, path("XDG_CONFIG_HOME").as_deref()).await.unwrap_or_default();
        String::from_utf8_lossy(&printed).into_owned()
    }

    async fn config_of(&self, file: &Path) -> Result<Vec<(String, String)>> {
        let words = ["config", "--no-includes", "--file", &file.display().to_string(), "--list", "-z"];
        let printed = self.own(&self.mirrors, &words, Stdin::Empty, SOON).await?;
        let text = String::from_utf8_lossy(&printed.stdout.bytes()).into_owned();
        let entries = text.split('\0').filter_map(|entry| entry.split_once('\n'));
        Ok(entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// The file with [`ANY_OWNER`].
    pub(super) fn any_owner(&self) -> PathBuf {
        self.mirrors.join("any-owner.gitconfig")
    }

    pub(super) fn write_any_owner(&self) -> Result<()> {
        let file = self.any_owner();
        if file.exists() {
            return Ok(());
        }
        coracle_runtime::host::fs::replace(&file, ANY_OWNER.as_bytes()).map_err(Failure::internal)
    }

    /// Why git cannot read a repository that was checked.
    pub(super) async fn unreadable(&self, source: &LocalSource, ended: &ProgramOutput) -> Failure {
        let said = ended.stderr.bytes();
        let (dir, word) = (source.dir.display(), shell_word(&source.dir.display().to_string()));
        let failed = |message: String| Failure::new(Code::FetchFailed, message);
        if source.is_partial() {
            let message = format!("`{dir}` is a partial clone: some of its objects lie only on its server");
            let hint = format!("run `git -C {word} fetch --refetch --no-filter` on the host, or clone it by its URL");
            return failed(message).hint(hint);
        }
        let text = String::from_utf8_lossy(&said);
        if text.contains("unknown repository extension") || text.contains("repo version") {
            let version = match self.git.program().await {
                Ok(program) => version_of(program).await.ok().flatten(),
                Err(_) => None,
            };
            let version = version.map(|it| format!(" {it}")).unwrap_or_default();
            let message = format!("git{version} of this host cannot read `{dir}`, which uses {}", source.extensions());
            return failed(message).hint("install a newer git on this host; one in your `PATH` is used if it is newer");
        }
        let message = format!("git cannot read the repository in `{dir}`: {}", reason(&said));
        let hint = match text.contains("fsck") {
            true => "set `sandbox.worktree.fsck = false` to take objects that break git's rules".to_owned(),
            false => format!("`git -C {word} fsck` on the host names what is wrong with it"),
        };
        failed(message).hint(hint)
    }
}

impl LocalSource {
    /// The directory that was named.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.config.iter().filter(move |it| it.0 == key).map(|it| it.1.as_str())
    }

    /// Where the repository itself came from.
    pub(super) fn origin(&self) -> Option<&str> {
        self.values("remote.origin.url").last()
    }

    /// `sha1` or `sha256`.
    pub(super) fn object_format(&self) -> &'static str {
        let is_sha256 = self.values("extensions.objectformat").last().is_some_and(|it| it == "sha256");
        if is_sha256 { "sha256" } else { "sha1" }
    }

    /// Objects may be missing that its server has.
    fn is_partial(&self) -> bool {
        let names = |(key, value): &(String, String)| {
            key == "extensions.partialclone" || (key.ends_with(".promisor") && value != "false")
        };
        self.config.iter().any(names)
    }

    /// Its history is cut off.
    pub(super) fn is_shallow(&self) -> bool {
        self.common_dir.join("shallow").symlink_metadata().is_ok()
    }

    fn extensions(&self) -> String {
        let names = self.config.iter().filter(|it| it.0.starts_with("extensions."));
        let names: Vec<_> = names.map(|(key, value)| format!("`{key} = {value}`")).collect();
        if names.is_empty() { "a newer format".to_owned() } else { names.join(", ") }
    }

    /// What worktrees cannot do, since their repository travels in packs of SHA-1 objects with a whole history.
    ///
    /// # Errors
    /// `unsupported`.
    pub(super) fn fits_worktrees(&self) -> Result<()> {
        let dir = self.dir.display();
        let (what, more) = match (self.is_shallow(), self.object_format()) {
            (true, _) => ("is a shallow clone", "run `git fetch --unshallow` there, or "),
            (_, "sha256") => ("has SHA-256 objects", ""),
            _ => return Ok(()),
        };
        let failure = Failure::new(Code::Unsupported, format!("`{dir}` {what}: worktrees cannot be made of it"));
        Err(failure.hint(format!("{more}use `coracle create --repo {}`", shell_word(&dir.to_string()))))
    }
}

/// The first reason that git gives.
pub(super) fn reason(said: &[u8]) -> String {
    let excerpt = Excerpt::from_bytes(said);
    let lines = || excerpt.as_str().lines().map(str::trim).filter(|it| !it.is_empty());
    let reason = lines().find_map(|line| line.strip_prefix("fatal: ").or_else(|| line.strip_prefix("error: ")));
    reason.or_else(|| lines().next()).unwrap_or("it gave no reason").chars().take(200).collect()
}

fn foreign_owner(dir: &Path, place: &Path) -> Failure {
    let uid = place.metadata().map(|it| it.uid().to_string()).unwrap_or_else(|_| "another user".to_owned());
    let message = format!("`{}` belongs to user {uid}, whom your git does not trust", place.display());
    let hint =
        format!("`git config --global --add safe.directory {}` trusts it", shell_word(&dir.display().to_string()));
    Failure::new(Code::PolicyDenied, message).detail("rule", "repository.owner").hint(hint)
}

/// As git reads a value of `safe.directory`.
fn is_named(dir: &Path, value: &str) -> bool {
    let real = |path: &str| Path::new(path).canonicalize().unwrap_or_else(|_| path.into());
    match value.strip_suffix("/*") {
        _ if value == "*" => true,
        Some(above) => dir != real(above) && dir.starts_with(real(above)),
        None => dir == real(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_trusted_by_name_by_what_is_above_or_all() {
        let dir = Path::new("/none/a/b");
        for (value, expected) in [("*", true), ("/none/a/b", true), ("/none/a/*", true), ("/none/a", false)] {
            assert_eq!(is_named(dir, value), expected, "{value}");
        }
        assert!(!is_named(dir, "/none/a/b/*"));
    }

    #[test]
    fn the_first_reason_of_git_is_the_cause() {
        let said = b"warning: x\nfatal: bad object\nfatal: Could not read from remote repository.\n\nPlease\n";
        assert_eq!(reason(said), "bad object");
        assert_eq!((reason(b"only this\n"), reason(b"")), ("only this".into(), "it gave no reason".into()));
    }
}

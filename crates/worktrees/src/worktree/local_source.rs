//! Checks a repository in a host directory before git reads it, and explains why git cannot.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use coracle_host::git::{GitProgram, HostGit as _, is_own, version_of};
use coracle_host::process::{ProgramOutput, Stdin};
use coracle_runtime::shell_word;
use coracle_types::failure::{Code, Failure, Result};

use super::{SOON, WorktreeManager};
use crate::local_repository::{LocalRepository, foreign_owner, is_named, reason};
use crate::repository_source::{RepositoryDirs, checked_repository};

/// Lets git read a directory of any owner: [`WorktreeManager::local_source`] checked the owner before.
const ANY_OWNER: &str = "[safe]\n\tdirectory = *\n";

impl WorktreeManager {
    /// Checks that everything that git reads of a repository is in an allowed place, and that the user trusts its
    /// owner.
    ///
    /// # Errors
    /// `policy_denied` for directories that are not allowed, and for a foreign owner; `fetch_failed` without a
    /// repository.
    pub(super) async fn local_source(&self, dir: &Path) -> Result<LocalRepository> {
        let roots = &self.settings.allow_roots;
        let common_dir = checked_repository(dir, roots)?;
        let git_dir = RepositoryDirs::find(dir, roots)?.map_or_else(|| common_dir.clone(), |place| place.git_dir);
        let sudo_uid = self.settings.user_env.get("SUDO_UID").map(OsString::as_os_str);
        let foreign = [dir, &git_dir].into_iter().find(|place| !is_own(place, sudo_uid)).map(Path::to_owned);
        if let Some(foreign) = foreign
            && !self.trusts(dir).await
        {
            return Err(foreign_owner(dir, &foreign));
        }
        let config = self.config_of(&common_dir.join("config")).await?;
        Ok(LocalRepository { dir: dir.to_owned(), git_dir, common_dir, config })
    }

    /// Whether `safe.directory` of the user's own configuration names it.
    async fn trusts(&self, dir: &Path) -> bool {
        let printed = self.user_config().await;
        let mut trusted = false;
        for value in printed.split('\0').filter_map(|entry| entry.strip_prefix("safe.directory\n")) {
            // An empty value clears the previous ones.
            trusted = !value.is_empty() && (trusted || is_named(dir, value));
        }
        trusted
    }

    /// The user's own configuration of git, as `git config --list -z` prints it.
    pub(super) async fn user_config(&self) -> String {
        let path = |name: &str| self.settings.user_env.get(name).map(PathBuf::from).filter(|it| it.is_absolute());
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
        coracle_host::fs::replace(&file, ANY_OWNER.as_bytes()).map_err(Failure::internal)
    }

    /// Explains why git cannot read a repository that was checked.
    pub(super) async fn unreadable(&self, source: &LocalRepository, ended: &ProgramOutput) -> Failure {
        let stderr = ended.stderr.bytes();
        let (dir, word) = (source.dir.display(), shell_word(&source.dir.display().to_string()));
        let failed = |message: String| Failure::new(Code::FetchFailed, message);
        if source.is_partial() {
            let message = format!("`{dir}` is a partial clone: some of its objects lie only on its server");
            let hint = format!("run `git -C {word} fetch --refetch --no-filter` on the host, or clone it by its URL");
            return failed(message).hint(hint);
        }
        let text = String::from_utf8_lossy(&stderr);
        if text.contains("unknown repository extension") || text.contains("repo version") {
            let version = match self.git.program().await {
                Ok(program) => version_of(program).await.ok().flatten(),
                Err(_) => None,
            };
            let version = version.map(|it| format!(" {it}")).unwrap_or_default();
            let message = format!("git{version} of this host cannot read `{dir}`, which uses {}", source.extensions());
            return failed(message).hint("install a newer git on this host; one in your `PATH` is used if it is newer");
        }
        let message = format!("git cannot read the repository in `{dir}`: {}", reason(&stderr));
        let hint = match text.contains("fsck") {
            true => "set `sandbox.worktree.fsck = false` to accept objects that violate git's rules".to_owned(),
            false => format!("`git -C {word} fsck` on the host names what is wrong with it"),
        };
        failed(message).hint(hint)
    }
}

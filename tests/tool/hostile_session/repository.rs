//! The user's repository, which is bound into the containers of a session.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::EXCHANGED;

/// What the user does in the repository afterwards, and whether it has to succeed for the attack to be tested.
const USERS_GIT: &[(&[&str], bool)] = &[
    (&["status"], true),
    (&["diff"], true),
    (&["log", "-p", "-1"], true),
    (&["commit", "--allow-empty", "-m", "x"], true),
    (&["rebase", "--abort"], false),
    (&["status", "--ignored"], true),
    (&["stash", "list"], true),
    (&["fetch", "--all"], true),
    (&["worktree", "list"], true),
];

/// The user's repository, with a remote and a worktree.
pub(super) struct Repository {
    pub(super) dir: PathBuf,
    linked: PathBuf,
    home: PathBuf,
}

impl Repository {
    pub(super) fn new(dir: PathBuf, home: PathBuf) -> Self {
        let repository = Self { dir, linked: home.join("linked"), home };
        let remote = repository.home.join("remote.git").display().to_string();
        let linked = repository.linked.display().to_string();
        let config = "[user]\n\tname = A\n\temail = a@example.com\n[init]\n\tdefaultBranch = main\n";
        std::fs::write(repository.home.join(".gitconfig"), config).unwrap();
        std::fs::write(repository.dir.join("f"), "f\n").unwrap();
        for words in [
            &["init", "-q"][..],
            &["add", "f"],
            &["commit", "-qm", "one"],
            &["init", "-q", "--bare", &remote],
            &["remote", "add", "origin", &remote],
            &["push", "-q", "origin", "main"],
            &["config", "extensions.worktreeConfig", "true"],
            &["worktree", "add", "-q", &linked],
        ] {
            let output = repository.git(&repository.dir, words);
            assert!(output.status.success(), "{words:?}: {output:?}");
        }
        repository
    }

    /// Adds files that editors, agents and builds use.
    pub(super) fn add_directories(&self) {
        for dir in EXCHANGED {
            std::fs::create_dir(self.dir.join(dir)).unwrap();
        }
        std::fs::write(self.dir.join(".cargo/config"), "").unwrap();
    }

    #[expect(clippy::disallowed_methods, reason = "the user's own git is tried")]
    pub(super) fn git(&self, dir: &Path, words: &[&str]) -> Output {
        let mut git = std::process::Command::new("timeout");
        git.args(["20", "git"]).args(words).current_dir(dir).env_clear();
        git.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &self.home);
        git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_EDITOR", "true").env("GIT_TERMINAL_PROMPT", "0");
        git.output().unwrap()
    }

    pub(super) fn use_it(&self) {
        for (words, must_work) in USERS_GIT {
            let output = self.git(&self.dir, words);
            assert!(output.status.success() || !must_work, "{words:?}: {output:?}");
        }
        let output = self.git(&self.linked, &["status"]);
        assert!(output.status.success(), "{output:?}");
    }
}

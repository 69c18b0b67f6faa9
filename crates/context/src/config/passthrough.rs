//! Data of the user that is passed to containers by default.

use std::path::PathBuf;

use super::macros::{table, texts};
use crate::arg_types::Passthrough;

table! {
    /// `auto_passthrough.*`
    AutoPassthrough {
        /// Default of the variables that are passed.
        mode: Passthrough = Passthrough::Auto,
        /// Patterns of names that `auto` passes, and that may be requested.
        env_patterns: Vec<String> = texts(coracle_provision::env::DEFAULT_PATTERNS),
        /// Further patterns of names that may be requested.
        env_allow: Vec<String>,
        /// Further patterns of names that are never passed.
        never: Vec<String>,
        /// The user's git configuration.
        forward_git: bool = true,
        /// GitHub's token.
        forward_gh: bool = true,
        /// SSH keys.
        forward_ssh: bool,
        /// The host's own certificate authorities.
        ca_certificates: bool = true,
        /// Files with further authorities.
        ca_files: Vec<PathBuf>,
        /// Further keys of the git configuration to pass.
        git_keys: Vec<String>,
        /// The GitHub host of the token.
        gh_host: String = "github.com".to_owned(),
        /// Hosts whose lines of `~/.ssh/known_hosts` are passed in addition to those of repositories.
        known_hosts: Vec<String>,
        /// Patterns of key files in `~/.ssh`.
        ssh_keys: Vec<String> = texts(&["id_*"]),
    }

    /// `dotfiles.*`
    Dotfiles {
        /// The repository to clone.
        repo: Option<String>,
        /// The script in it that sets them up; default: the usual names are tried.
        script: Option<String>,
        /// Their branch; default: the default branch.
        branch: Option<String>,
        /// The target; default: `~/.dotfiles`.
        target: Option<String>,
    }
}

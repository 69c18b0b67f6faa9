//! What of the person's goes into containers without being asked for.

use std::path::PathBuf;

use super::macros::{table, texts};
use crate::arg_types::Passthrough;

table! {
    /// `auto_passthrough.*`
    AutoPassthrough {
        /// Which variables go in when the caller does not say.
        mode: Passthrough = Passthrough::Auto,
        /// Patterns of names that go in with `auto`, and may be named.
        env_patterns: Vec<String> = texts(coracle_provision::env::DEFAULT_PATTERNS),
        /// Further patterns of names that may be named.
        env_allow: Vec<String>,
        /// Patterns of names that never go in, beside those that never do.
        never: Vec<String>,
        /// The person's git configuration.
        forward_git: bool = true,
        /// GitHub's token.
        forward_gh: bool = true,
        /// Keys for ssh.
        forward_ssh: bool,
        /// The host's own certificate authorities.
        ca_certificates: bool = true,
        /// Files with more of them.
        ca_files: Vec<PathBuf>,
        /// Keys of the git configuration that go in beside the usual ones.
        git_keys: Vec<String>,
        /// The GitHub whose token is meant.
        gh_host: String = "github.com".to_owned(),
        /// Hosts whose lines of `~/.ssh/known_hosts` go in beside those of repositories.
        known_hosts: Vec<String>,
        /// Patterns of names in `~/.ssh`.
        ssh_keys: Vec<String> = texts(&["id_*"]),
    }

    /// `dotfiles.*`
    Dotfiles {
        /// Where they are cloned from.
        repo: Option<String>,
        /// The script in it that sets them up; the usual names are looked for when missing.
        script: Option<String>,
        /// Their branch; the default one when missing.
        branch: Option<String>,
        /// Where they go; `~/.dotfiles` when missing.
        target: Option<String>,
    }
}

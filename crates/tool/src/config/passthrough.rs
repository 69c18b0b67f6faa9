//! What of the person's goes into containers without being asked for.

use std::path::PathBuf;

use serde::Deserialize;

use crate::arg_types::Passthrough;

/// `auto_passthrough.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AutoPassthrough {
    /// Which variables go in when the caller does not say.
    pub mode: Passthrough,
    /// Patterns of names that go in with `auto`, and may be named.
    pub env_patterns: Vec<String>,
    /// Further patterns of names that may be named.
    pub env_allow: Vec<String>,
    /// Patterns of names that never go in, beside those that never do.
    pub never: Vec<String>,
    /// The person's git configuration.
    pub forward_git: bool,
    /// GitHub's token.
    pub forward_gh: bool,
    /// Keys for ssh.
    pub forward_ssh: bool,
    /// The host's own certificate authorities.
    pub ca_certificates: bool,
    /// Files with more of them.
    pub ca_files: Vec<PathBuf>,
    /// Keys of the git configuration that go in beside the usual ones.
    pub git_keys: Vec<String>,
    /// The GitHub whose token is meant.
    pub gh_host: String,
    /// Hosts whose lines of `~/.ssh/known_hosts` go in beside those of repositories.
    pub known_hosts: Vec<String>,
    /// Patterns of names in `~/.ssh`.
    pub ssh_keys: Vec<String>,
}

impl Default for AutoPassthrough {
    fn default() -> Self {
        let words = |them: &[&str]| them.iter().map(|it| (*it).to_owned()).collect();
        Self {
            mode: Passthrough::Auto,
            env_patterns: words(coracle_provision::env::DEFAULT_PATTERNS),
            env_allow: Vec::new(),
            never: Vec::new(),
            forward_git: true,
            forward_gh: true,
            forward_ssh: false,
            ca_certificates: true,
            ca_files: Vec::new(),
            git_keys: Vec::new(),
            gh_host: "github.com".to_owned(),
            known_hosts: Vec::new(),
            ssh_keys: words(&["id_*"]),
        }
    }
}

/// `dotfiles.*`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dotfiles {
    /// Where they are cloned from.
    pub repo: Option<String>,
    /// The script in it that sets them up; the usual names are looked for when missing.
    pub script: Option<String>,
    /// Their branch; the default one when missing.
    pub branch: Option<String>,
    /// Where they go; `~/.dotfiles` when missing.
    pub target: Option<String>,
}

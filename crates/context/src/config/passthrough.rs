//! Data of the user that is passed to containers by default.

use std::path::PathBuf;

use super::macros::table;
use crate::arg_types::Passthrough;

table! {
    /// `auto_passthrough.*`
    AutoPassthrough {
        /// default of `env_passthrough`: `auto`, `all`, `none` or a list of names
        mode: Passthrough = "auto",
        /// names that `auto` passes and that calls may name; a lone `*` is refused
        env_patterns: Vec<String> = coracle_provision::env::DEFAULT_PATTERNS
            => "see [provisioning](provisioning.md#variables)",
        /// more names that calls may name
        env_allow: Vec<String>,
        /// names that never go in, in addition to the fixed ones
        never: Vec<String>,
        /// default of `forward_git`
        forward_git: bool = true,
        /// default of `forward_gh`
        forward_gh: bool = true,
        /// default of `forward_ssh`
        forward_ssh: bool = false,
        /// the host's own certificate authorities go in
        ca_certificates: bool = true,
        /// files with more of them
        ca_files: Vec<PathBuf>,
        /// more keys of the git configuration that go in
        git_keys: Vec<String>,
        /// the GitHub host whose token goes in
        gh_host: String = "github.com",
        /// hosts whose `~/.ssh/known_hosts` lines go in, in addition to those of the call's repositories
        known_hosts: Vec<String>,
        /// patterns of names in `~/.ssh`
        ssh_keys: Vec<String> = ["id_*"],
    }

    /// `dotfiles.*`
    Dotfiles {
        /// repository of your dotfiles
        repo: Option<String>,
        /// its branch
        branch: Option<String> => "the default one",
        /// its set-up script
        script: Option<String> => "found",
        /// where it is cloned
        target: Option<String> => "`~/.dotfiles`",
    }
}

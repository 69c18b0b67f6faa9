//! The user's settings for the tools.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use coracle_types::ByteSize;
use serde::Deserialize;

use crate::language::Language;
pub use crate::paths::{PathCharset, PathRoot, PathRules};

/// The user's settings for the tools.
#[derive(Clone, Debug)]
pub struct ToolSettings {
    /// How paths are read.
    pub paths: PathRules,
    /// How the keys of a command's environment are converted.
    pub env_keys: EnvKeys,
    /// A file that is there must have been read before it is changed.
    pub read_before_write: bool,
    /// Names of directories that scans for changes skip.
    pub scan_exclude: Vec<String>,
    /// The size of a workspace above which responses warn.
    pub max_bytes: Option<ByteSize>,
    /// There is a tool for what has to go on after a command.
    pub has_jobs: bool,
    /// Settings of snippets.
    pub run: RunSettings,
}

/// How the keys of a command's environment are converted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnvKeys {
    /// To upper case.
    #[default]
    Upper,
    /// Unchanged.
    Preserve,
}

/// Settings of snippets.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Where snippets run.
    pub mode: Mode,
    /// The longest time limit of a snippet.
    pub max_timeout: Duration,
    /// Limits of a snippet's container.
    pub memory: ByteSize,
    /// A container whose snippet took too long is taken away.
    pub discard_at_timeout: bool,
    /// Packages may be fetched while a snippet runs.
    pub has_network: bool,
    /// Snippets run in a container that the call names: by its programs, as its user, in its work directory.
    pub is_named: bool,
}

/// Where snippets run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In a container of the session.
    Container,
    /// In a program that the user configured.
    Preload(Preload),
    /// The configured mode is unknown; this is its text.
    Invalid(String),
    /// A program was requested and none is configured.
    Unavailable,
}

/// A program of the user that runs snippets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preload {
    /// The program: an absolute path, or the name of one that is not installed.
    pub program: PathBuf,
    /// Its arguments. The snippet's file comes last.
    pub words: Vec<String>,
    /// Its languages.
    pub languages: Vec<Language>,
    /// The value of `PATH`.
    pub path: OsString,
    /// The parent of a directory for each snippet.
    pub temp_dir: PathBuf,
}

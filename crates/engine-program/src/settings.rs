//! How an engine is reached, decided by the caller.

use std::path::PathBuf;

use coracle_host::registry_login::LoginFiles;

/// The connection to an engine. Decided once, from configuration and host.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The engine's program; found in the usual places when missing.
    pub program: Option<PathBuf>,
    /// Its address; the local endpoint by default.
    pub endpoint: Option<String>,
    /// Coracle's directory for the configuration that engines run with.
    pub config_dir: PathBuf,
    /// The user's home.
    pub home: PathBuf,
    /// `XDG_RUNTIME_DIR`, which rootless engines need.
    pub runtime_dir: Option<PathBuf>,
    /// Temporary files of the engine's program go here.
    pub temp_dir: PathBuf,
    /// Whether reads may go over the engine's API.
    pub api: ApiUse,
    /// The configuration of `ssh` for an engine on another machine; the user's own when missing.
    pub ssh_config: Option<PathBuf>,
    /// The socket of the user's agent for keys of `ssh`.
    pub ssh_agent: Option<PathBuf>,
    /// The user's logins of registries, for pulls by Docker. Podman finds them by itself.
    pub logins: LoginFiles,
}

/// How the engine is read. Changes always use its program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiUse {
    /// Over the socket of the engine, where it answers; else by the program.
    #[default]
    Auto,
    /// Reads use the program.
    Never,
    /// Over this socket, which is that of the engine behind the program.
    At(PathBuf),
}

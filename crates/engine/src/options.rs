//! Options of an engine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use coracle_host::registry_login::LoginOptions;

/// The places and programs that an engine uses. Decided once, by the caller: the engine reads no environment.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Images, containers and volumes; the same for all processes that share this engine. Not on an overlay.
    pub data_dir: PathBuf,
    /// The guest's program for this machine: PID 1 of containers that have no guest of their own.
    pub guest: Option<PathBuf>,
    /// The user's home, for the credentials of registries.
    pub home: PathBuf,
    /// How images are fetched.
    pub registries: RegistryOptions,
}

#[cfg(test)]
impl EngineOptions {
    /// Of an engine without a guest, with everything below a directory.
    pub(crate) fn example(dir: &std::path::Path) -> Self {
        Self { data_dir: dir.join("data"), guest: None, home: dir.to_owned(), registries: RegistryOptions::default() }
    }
}

/// How images are fetched from registries and other engines.
#[derive(Clone, Debug, Default)]
pub struct RegistryOptions {
    /// Proxies, as variables of the environment name them.
    pub proxy: ProxyOptions,
    /// PEM files of certificates that are trusted beside the machine's own.
    pub extra_ca_files: Vec<PathBuf>,
    /// Directory of Docker's `config.json`; `~/.docker` if unset.
    pub docker_config: Option<PathBuf>,
    /// Files of credentials beside those in the home, in the format of `~/.docker/config.json`: Podman's is
    /// `$XDG_RUNTIME_DIR/containers/auth.json`.
    pub auth_files: Vec<PathBuf>,
    /// Directories of `docker-credential-*`, `docker` and `podman`, before the usual ones of the system.
    pub program_dirs: Vec<PathBuf>,
    /// Environment of these programs: `HOME`, `PATH`, and `XDG_RUNTIME_DIR`, `DOCKER_HOST` or `DBUS_SESSION_BUS_ADDRESS`
    /// where set.
    pub program_env: BTreeMap<String, OsString>,
    /// Bytes that a layer may unpack to; 64 GiB if unset.
    pub max_layer_bytes: Option<u64>,
    /// Bytes that all missing layers of an image may have, as they are fetched and as they unpack; 128 GiB if unset.
    pub max_image_bytes: Option<u64>,
}

impl RegistryOptions {
    /// Where the user's logins are.
    pub(crate) fn logins(&self) -> LoginOptions {
        LoginOptions {
            docker_config: self.docker_config.clone(),
            auth_files: self.auth_files.clone(),
            program_dirs: self.program_dirs.clone(),
            program_env: self.program_env.clone(),
        }
    }
}

/// Proxies for registries other than those of this machine.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyOptions {
    /// `HTTPS_PROXY`: `http://[user:password@]host:port`.
    pub https: Option<String>,
    /// `NO_PROXY`.
    pub no_proxy: String,
}

/// Without the password that the address may hold.
impl std::fmt::Debug for ProxyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyOptions").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}

//! Options of an engine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use coracle_host::registry_login::LoginOptions;

/// The directories and programs that an engine uses. The caller sets all of them: the engine reads no environment variables.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The directory of images, containers and volumes, the same for all processes that share this engine. It must not be on
    /// an overlay.
    pub data_dir: PathBuf,
    /// The guest's program for this machine: PID 1 of containers that have no guest of their own.
    pub guest: Option<PathBuf>,
    /// The user's home, for the credentials of registries.
    pub home: PathBuf,
    /// How images are fetched.
    pub registries: RegistryOptions,
}

impl EngineOptions {
    /// Options of an engine without a guest of its own, which uses the machine's certificates, the logins below `home`, and
    /// no proxy.
    pub fn new(data_dir: impl Into<PathBuf>, home: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), guest: None, home: home.into(), registries: RegistryOptions::default() }
    }
}

#[cfg(test)]
impl EngineOptions {
    /// Options for an engine without a guest, with everything below one directory.
    pub(crate) fn example(dir: &std::path::Path) -> Self {
        Self::new(dir.join("data"), dir)
    }
}

/// How images are fetched from registries and other engines.
#[derive(Clone, Debug, Default)]
pub struct RegistryOptions {
    /// Proxies, in the format of the usual environment variables.
    pub proxy: ProxyOptions,
    /// PEM files of certificates that are trusted in addition to the machine's own.
    pub extra_ca_files: Vec<PathBuf>,
    /// Directory of Docker's `config.json`; `~/.docker` if unset.
    pub docker_config: Option<PathBuf>,
    /// Further credential files outside the home, in the format of `~/.docker/config.json`: Podman's is
    /// `$XDG_RUNTIME_DIR/containers/auth.json`.
    pub auth_files: Vec<PathBuf>,
    /// Directories to search for `docker-credential-*`, `docker` and `podman` before the system's usual ones.
    pub program_dirs: Vec<PathBuf>,
    /// Environment of these programs: `HOME`, `PATH`, and `XDG_RUNTIME_DIR`, `DOCKER_HOST` or `DBUS_SESSION_BUS_ADDRESS`
    /// where set.
    pub program_env: BTreeMap<String, OsString>,
    /// Maximum unpacked size of a layer in bytes; 64 GiB if unset.
    pub max_layer_bytes: Option<u64>,
    /// Maximum size in bytes of all missing layers of an image, both fetched and unpacked; 128 GiB if unset.
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

/// Omits the password that the address may contain.
impl std::fmt::Debug for ProxyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyOptions").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}

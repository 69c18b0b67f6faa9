//! The user's registry logins: `~/.docker/config.json`, Podman's `auth.json`, and their helpers.
//!
//! **Invariant:** no error and no message contains a part of a login.

mod credential_helper;
mod files;
mod name;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use coracle_types::Secret;

pub use self::files::{LoginFiles, deserialize_secret};
pub use self::name::{HUB, HUB_ALIASES, RegistryPath};

/// Where logins are searched, besides the home directory.
#[derive(Clone, Debug, Default)]
pub struct LoginOptions {
    /// Directory of Docker's `config.json`; `~/.docker` if unset.
    pub docker_config: Option<PathBuf>,
    /// Further files in Docker's format: Podman's is `$XDG_RUNTIME_DIR/containers/auth.json`.
    pub auth_files: Vec<PathBuf>,
    /// Directories of `docker-credential-*`, before those of the system.
    pub program_dirs: Vec<PathBuf>,
    /// Environment of these programs.
    pub program_env: BTreeMap<String, OsString>,
}

/// A login and its source.
#[derive(Clone, Debug)]
pub struct RegistryLogin {
    /// The login.
    pub kind: CredentialKind,
    /// The source for messages: a file or a helper.
    pub origin: String,
}

/// Credentials in one of several forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// A user with a password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A token that is exchanged for tokens of the registry.
    IdentityToken(Secret),
    /// A token of the registry.
    RegistryToken(Secret),
}

impl CredentialKind {
    /// Converts a user and a secret: one user name marks an identity token.
    fn of_user(user: &str, secret: Secret) -> Self {
        if user == "<token>" {
            return Self::IdentityToken(secret);
        }
        Self::Password { user: user.to_owned(), password: secret }
    }
}

/// A file that cannot be read, or a helper that is missing, fails, or has an unexpected answer.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {why}")]
pub struct LoginError {
    /// The file or the helper.
    pub origin: String,
    /// The reason.
    pub why: String,
}

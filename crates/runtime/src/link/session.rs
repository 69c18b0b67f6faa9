//! What all commands of a container share: variables, and files that are kept nowhere.

use super::{Link, not_understood};
use crate::{ContainerPath, Ids, Result, Secret};

/// A file on the container's own tmpfs, out of reach of file calls and gone with the guest.
#[derive(Debug)]
pub struct SecretFile {
    /// Its path below `/.coracle/run`: `ssh/id_ed25519`. Directories on the way are the user's alone.
    pub name: String,
    /// Whose it is.
    pub user: Ids,
    /// 0400 or 0600.
    pub mode: u32,
    /// What is in it.
    pub content: Secret,
}

impl Link {
    /// Variables that every command gets from now on, below those of its own. They replace what was set before, and are
    /// gone with the guest.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) for what no environment can hold.
    pub async fn set_session(&self, env: &[(String, Secret)]) -> Result<()> {
        let _ = env;
        Err(not_understood())
    }

    /// Writes a file that must not be on a disk, and gives its path inside.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused).
    pub async fn put_secret(&self, file: SecretFile) -> Result<ContainerPath> {
        let _ = file;
        Err(not_understood())
    }
}

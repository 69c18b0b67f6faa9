//! The keys of server and client, created once and stored in the state directory.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use coracle_context::{Code, Failure};
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PublicKey};

/// The host key alias: the same for every container.
pub(crate) const HOST_KEY_ALIAS: &str = "coracle";

/// The server's key, the client's key, and the client's file of known hosts.
#[derive(Debug)]
pub struct SshKeys {
    pub(crate) server: PrivateKey,
    pub(crate) client: PublicKey,
    pub(crate) identity_file: PathBuf,
    pub(crate) known_hosts: PathBuf,
}

impl SshKeys {
    /// Reads the keys in a directory, and creates missing ones. All files have mode 0600.
    ///
    /// # Errors
    /// `config_invalid` when a file cannot be read or written, or does not contain a key.
    pub fn open(dir: &Path) -> Result<Self, Failure> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|err| unusable(dir, &err.to_string()))?;
        let identity_file = dir.join("id_ed25519");
        let client = key(&identity_file)?;
        let server = key(&dir.join("host_ed25519"))?;
        let known_hosts = dir.join("known_hosts");
        let line = format!("{HOST_KEY_ALIAS} {}\n", openssh(&known_hosts, server.public_key())?);
        if fs::read_to_string(&known_hosts).ok().as_ref() != Some(&line) {
            write(&known_hosts, &line, true).map_err(|err| unusable(&known_hosts, &err.to_string()))?;
        }
        Ok(Self { client: client.public_key().clone(), server, identity_file, known_hosts })
    }
}

fn openssh(path: &Path, key: &PublicKey) -> Result<String, Failure> {
    key.to_openssh().map_err(|err| unusable(path, &err.to_string()))
}

/// Reads the key in a file, and creates a missing one.
fn key(path: &Path) -> Result<PrivateKey, Failure> {
    if !path.exists() {
        create(path).map_err(|err| unusable(path, &err.to_string()))?;
    }
    let readable = fs::metadata(path).map_err(|err| unusable(path, &err.to_string()))?;
    if readable.permissions().mode() & 0o077 != 0 {
        let hint = format!("run `chmod 600 {}`", path.display());
        return Err(unusable(path, "others can read it").hint(hint));
    }
    let text = fs::read_to_string(path).map_err(|err| unusable(path, &err.to_string()))?;
    PrivateKey::from_openssh(&text).map_err(|err| unusable(path, &err.to_string()))
}

/// Creates a key file atomically, because another process may do the same concurrently.
fn create(path: &Path) -> io::Result<()> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let mut key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
    key.set_comment(HOST_KEY_ALIAS);
    let text = key.to_openssh(LineEnding::LF).map_err(io::Error::other)?;
    write(path, &text, false)
}

fn write(path: &Path, text: &str, replace: bool) -> io::Result<()> {
    if replace {
        return coracle_host::fs::replace(path, text.as_bytes());
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mut file = coracle_host::temporary::file_in(dir)?;
    file.as_file().set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        // The key of the other process is used.
        Err(err) if err.error.kind() != io::ErrorKind::AlreadyExists => Err(err.error),
        _ => Ok(()),
    }
}

fn unusable(path: &Path, why: &str) -> Failure {
    let message = format!("the ssh file `{}` cannot be used: {why}", path.display());
    Failure::new(Code::ConfigInvalid, message)
        .detail("path", path.display().to_string())
        .hint("remove it, and `coracle ssh-config` makes a new one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_created_once_and_readable_by_their_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("ssh");
        let first = SshKeys::open(&dir).unwrap();
        let again = SshKeys::open(&dir).unwrap();
        assert_eq!((first.client, first.server.public_key()), (again.client, again.server.public_key()));
        for file in ["id_ed25519", "host_ed25519", "known_hosts"] {
            assert_eq!(fs::metadata(dir.join(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
        }
        fs::set_permissions(dir.join("id_ed25519"), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(SshKeys::open(&dir).unwrap_err().code, Code::ConfigInvalid);
    }
}

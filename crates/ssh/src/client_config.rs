//! The configuration of an OpenSSH client.

use std::fmt::Write as _;
use std::path::Path;

use coracle_context::Failure;

use crate::keys::{HOST_KEY_ALIAS, SshKeys};

/// The suffix of container names as host names.
pub const HOST_SUFFIX: &str = ".coracle";

/// The user for hosts without an entry, and for containers whose user's name is not plain. The server logs it in as the
/// container's own user; otherwise the client would send the local user's name, and a local root would request root in
/// the container.
const ANY_USER: &str = "coracle";

/// A host entry for a container, which editors can offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// The container's name.
    pub container: String,
    /// The user that runs its commands. It is set by an image, so it may be any text.
    pub user: Option<String>,
}

/// The settings that a client needs to connect to containers.
#[derive(Debug)]
pub struct ClientConfig<'a> {
    /// The keys.
    pub keys: &'a SshKeys,
    /// The command that starts the server; the host's name is appended.
    pub proxy: &'a [String],
    /// Containers with an entry.
    pub hosts: &'a [HostEntry],
}

/// The container for a host name.
#[must_use]
pub fn container_of_host(host: &str) -> &str {
    host.strip_suffix(HOST_SUFFIX).unwrap_or(host)
}

impl ClientConfig<'_> {
    /// The configuration's text. It applies to all containers, including those created later.
    ///
    /// # Errors
    /// `invalid_input` for a path that an ssh configuration cannot contain.
    pub fn text(&self) -> Result<String, Failure> {
        let mut text =
            String::from("# Containers of Coracle for OpenSSH. `coracle ssh-config --write` rewrites this file.\n");
        for HostEntry { container, user } in self.hosts {
            let user = user.as_deref().filter(|it| is_plain(it)).unwrap_or(ANY_USER);
            let _ = write!(text, "Host {container}{HOST_SUFFIX}\n    User {user}\n\n");
        }
        let words: Result<Vec<_>, _> = self.proxy.iter().map(|it| shlex::try_quote(it)).collect();
        let words = words.map_err(|err| Failure::invalid("ssh-config", err.to_string()))?;
        // The user's shell runs the proxy, and a host name may come from a repository's submodule. Quotes make it one word,
        // and names that contain a quote match no entry. `%h` would be in lower case, which is another container.
        let (identity, known) = (quoted(&self.keys.identity_file)?, quoted(&self.keys.known_hosts)?);
        let _ = writeln!(
            text,
            "Host *{HOST_SUFFIX} \"!*'*\"\n    ProxyCommand {} -- '%n'\n    User {ANY_USER}\n    \
             IdentityFile {identity}\n    IdentitiesOnly yes\n    \
             HostKeyAlias {HOST_KEY_ALIAS}\n    UserKnownHostsFile {known}\n    GlobalKnownHostsFile none\n    \
             StrictHostKeyChecking yes\n    PreferredAuthentications publickey\n    ForwardAgent no\n    \
             ForwardX11 no",
            words.join(" ").replace('%', "%%"),
        );
        Ok(text)
    }
}

/// Whether ssh reads a name literally, as one word.
fn is_plain(name: &str) -> bool {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"._-".contains(&it);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)
}

/// A path as the value of a setting.
fn quoted(path: &Path) -> Result<String, Failure> {
    let text = path.display().to_string();
    if text.contains(['"', '\n', '\\']) {
        return Err(Failure::invalid("state_dir", "a path with `\"`, `\\` or a line break cannot be given to ssh"));
    }
    Ok(format!("\"{}\"", text.replace('%', "%%")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_quoted_for_the_client() {
        let dir = tempfile::tempdir().unwrap();
        let keys = SshKeys::open(&dir.path().join("50% of it")).unwrap();
        let proxy = ["/opt/a b/coracle", "--config", "/tmp/100%", "ssh-proxy"].map(str::to_owned);
        let entry = |container: &str, user: &str| HostEntry { container: container.into(), user: Some(user.into()) };
        let hosts = [entry("web", "dev"), entry("hostile", "x\n    ProxyCommand touch /tmp/x")];
        let text = ClientConfig { keys: &keys, proxy: &proxy, hosts: &hosts }.text().unwrap();
        assert!(text.contains("Host web.coracle\n    User dev\n"), "{text}");
        assert!(text.contains("Host hostile.coracle\n    User coracle\n") && !text.contains("touch"), "{text}");
        assert!(text.contains("ProxyCommand '/opt/a b/coracle' --config '/tmp/100%%' ssh-proxy -- '%n'\n"), "{text}");
        assert!(text.contains("50%% of it/id_ed25519\"\n"), "{text}");
        assert_eq!((container_of_host("web.coracle"), container_of_host("web")), ("web", "web"));
    }
}

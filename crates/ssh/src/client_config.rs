//! The configuration of an OpenSSH client.

use std::fmt::Write as _;
use std::path::Path;

use coracle_context::Failure;

use crate::keys::{HOST_KEY_ALIAS, SshKeys};

/// The names of containers end with it as names of hosts.
pub const HOST_SUFFIX: &str = ".coracle";

/// The user of hosts that have no entry, and of those whose user has no plain name. The server lets it in as the
/// container's own user; without it, the client would name the person, and a person who is root would ask for root inside.
const ANY_USER: &str = "coracle";

/// A container as a host of its own, which editors then offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// The container's name.
    pub container: String,
    /// The user that its commands run as. An image names it, so it may be any text.
    pub user: Option<String>,
}

/// What a client needs to reach containers.
#[derive(Debug)]
pub struct ClientConfig<'a> {
    /// The keys.
    pub keys: &'a SshKeys,
    /// The words that start the server; the host's name follows.
    pub proxy: &'a [String],
    /// Containers that are named.
    pub hosts: &'a [HostEntry],
}

/// The container that a host's name stands for.
#[must_use]
pub fn container_of_host(host: &str) -> &str {
    host.strip_suffix(HOST_SUFFIX).unwrap_or(host)
}

impl ClientConfig<'_> {
    /// The text. It serves all containers, also those that are made later.
    ///
    /// # Errors
    /// `invalid_input` for a path that no configuration of ssh can have.
    pub fn text(&self) -> Result<String, Failure> {
        let mut text =
            String::from("# Containers of Coracle for OpenSSH. `coracle ssh-config --write` writes this file anew.\n");
        for HostEntry { container, user } in self.hosts {
            let user = user.as_deref().filter(|it| is_plain(it)).unwrap_or(ANY_USER);
            let _ = write!(text, "Host {container}{HOST_SUFFIX}\n    User {user}\n\n");
        }
        let words: Result<Vec<_>, _> = self.proxy.iter().map(|it| shlex::try_quote(it)).collect();
        let words = words.map_err(|err| Failure::invalid("ssh-config", err.to_string()))?;
        // The person's shell runs the proxy, and the name of a host may come from a repository's submodule. In quotes it
        // is one word, and names that have a quote themselves are left out: they match no entry. `%h` would be in lower
        // case, which is another container.
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

/// Whether a name is one word that ssh reads as it is.
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
    fn every_word_reaches_the_client_as_it_is() {
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

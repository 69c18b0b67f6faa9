//! URLs of repositories to clone.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::is_public;

const MAX_BYTES: usize = 2048;

/// Rules for a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GitRules {
    /// `http://`, and hosts whose address is private (`images.git_allow_private`).
    pub allow_private: bool,
    /// `ssh://` and `user@host:path`.
    pub ssh: bool,
}

/// The URL of a repository to clone, which git cannot interpret as an option, a program or a path.
///
/// Its grammar is narrower than that of URLs, so that git, curl, ssh and this type cannot read one text differently.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GitUrl {
    text: String,
    scheme: Scheme,
    host: String,
    port: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scheme {
    Https,
    Http,
    Ssh,
}

/// Why a text is not a URL to clone from. The text may contain a secret and is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGitUrl {
    /// It is empty or longer than 2048 bytes.
    #[error("a URL to clone from has 1 to {MAX_BYTES} bytes")]
    Length,
    /// A blank, a control character, a backslash, or one that is not ASCII.
    #[error("a URL to clone from has letters, digits and `/ . - _ ~ : @ % + , ; = & ! $ ' ( ) *` only")]
    Character,
    /// A local path, another protocol, a program, or an option.
    #[error("a URL to clone from begins with `https://`")]
    Scheme,
    /// `ssh://` or `user@host:path`, which are not enabled.
    #[error("a URL to clone from begins with `https://`, since the ssh identity is not forwarded")]
    Ssh,
    /// A user in a web URL, or an invalid user name.
    #[error("a URL to clone from has no user part")]
    User,
    /// No host, or an unusual spelling of one.
    #[error("the URL to clone from names no host")]
    Host,
    /// A port that is not a number from 1 to 65535.
    #[error("the port of the URL to clone from is no number from 1 to 65535")]
    Port,
    /// No repository, or a path with `.` and `..`.
    #[error("the URL to clone from names no repository")]
    Path,
    /// Text after `?` or `#`.
    #[error("a URL to clone from has no query and no fragment")]
    Query,
    /// `http://`: refused by policy.
    #[error("a URL to clone from begins with `https://`: plain http can be read and changed on the way")]
    Http,
    /// A host that is no public one: refused by policy.
    #[error("the host of the URL to clone from is not public")]
    Private,
}

impl InvalidGitUrl {
    /// The violated rule of the policy, if it is one. The user can lift it.
    #[must_use]
    pub fn rule(self) -> Option<&'static str> {
        matches!(self, Self::Http | Self::Private).then_some("repo.private")
    }
}

impl GitUrl {
    /// Parses a URL. Contacts no name server.
    ///
    /// # Errors
    /// [`InvalidGitUrl`].
    pub fn parse(text: &str, rules: GitRules) -> Result<Self, InvalidGitUrl> {
        use InvalidGitUrl as E;
        if text.is_empty() || text.len() > MAX_BYTES {
            return Err(E::Length);
        }
        // Options are refused first, so that the message calls them options.
        if text.starts_with('-') {
            return Err(E::Scheme);
        }
        if text.contains(['?', '#']) {
            return Err(E::Query);
        }
        if !text.bytes().all(is_allowed) {
            return Err(E::Character);
        }
        let url = Self::read(text)?;
        match url.scheme {
            Scheme::Ssh if !rules.ssh => Err(E::Ssh),
            Scheme::Http if !rules.allow_private => Err(E::Http),
            _ if !rules.allow_private && url.is_known_private() => Err(E::Private),
            _ => Ok(url),
        }
    }

    fn read(text: &str) -> Result<Self, InvalidGitUrl> {
        use InvalidGitUrl as E;
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("ssh", rest)) => (Scheme::Ssh, rest),
            Some(_) => return Err(E::Scheme),
            None => return Self::read_scp(text),
        };
        let (authority, path) = rest.split_once('/').ok_or(E::Path)?;
        let host = match (authority.rsplit_once('@'), scheme) {
            (None, _) => authority,
            (Some((user, host)), Scheme::Ssh) if is_plain_name(user) => host,
            (Some(_), _) => return Err(E::User),
        };
        let (host, port) = host_and_port(host)?;
        check_path(path)?;
        Ok(Self { text: text.to_owned(), scheme, host, port })
    }

    /// Parses `user@host:path`. Without a user, it could be a path on this host, or `ext::program`.
    fn read_scp(text: &str) -> Result<Self, InvalidGitUrl> {
        use InvalidGitUrl as E;
        let (user, rest) = text.split_once('@').ok_or(E::Scheme)?;
        if !is_plain_name(user) {
            return Err(if user.contains(['/', ':']) { E::Scheme } else { E::User });
        }
        let (host, path) = rest.split_once(':').ok_or(E::Scheme)?;
        if host.contains('/') {
            return Err(E::Scheme);
        }
        let (host, _) = host_and_port(host)?;
        // For the remote program a leading `-` is an option, and `host::path` is another program's address.
        if path.starts_with(['-', ':']) {
            return Err(E::Path);
        }
        check_path(path.trim_start_matches('/'))?;
        Ok(Self { text: text.to_owned(), scheme: Scheme::Ssh, host, port: None })
    }

    /// The URL as an argument of git.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The last part of its path without `.git`, which is the default name of a clone.
    #[must_use]
    pub fn repository(&self) -> &str {
        let last = self.text.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
        last.strip_suffix(".git").unwrap_or(last)
    }

    /// The host, without user, brackets and port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, or the default one of its protocol.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(match self.scheme {
            Scheme::Https => 443,
            Scheme::Http => 80,
            Scheme::Ssh => 22,
        })
    }

    /// Its host as an address, if it is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether it is cloned over ssh.
    #[must_use]
    pub fn is_ssh(&self) -> bool {
        self.scheme == Scheme::Ssh
    }

    /// Whether an attacker on the network can read and change the traffic.
    #[must_use]
    pub fn insecure(&self) -> bool {
        self.scheme == Scheme::Http
    }

    /// Whether the host is private by its name or address, without a lookup.
    fn is_known_private(&self) -> bool {
        let host = self.host.to_ascii_lowercase();
        let local = host == "localhost" || host.ends_with(".localhost");
        local || self.address().is_some_and(|it| !is_public(it))
    }
}

impl fmt::Display for GitUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether the character is allowed in a URL; those that begin a query or a fragment are not.
fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/.-_~:@%+,;=&!$'()*[]".contains(&byte)
}

/// Whether no program interprets a user name as an option or as two arguments.
fn is_plain_name(user: &str) -> bool {
    let fits = |it: u8| it.is_ascii_alphanumeric() || b"._-".contains(&it);
    user.len() <= 64 && user.bytes().all(fits) && user.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '_')
}

fn host_and_port(text: &str) -> Result<(String, Option<u16>), InvalidGitUrl> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(InvalidGitUrl::Host)?;
            // An address with a zone (`fe80::1%eth0`) is not accepted.
            host.parse::<Ipv6Addr>().map_err(|_| InvalidGitUrl::Host)?;
            match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if port.is_empty() => (host, None),
                None => return Err(InvalidGitUrl::Host),
            }
        }
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            if !is_host(host) {
                return Err(InvalidGitUrl::Host);
            }
            (host, port)
        }
    };
    let port = port.map(|it| port_number(it).ok_or(InvalidGitUrl::Port)).transpose()?;
    Ok((host.to_owned(), port))
}

fn port_number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|it| it.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| digits)
}

/// Accepts a name, or an IPv4 address in its usual spelling. Resolvers interpret `0x7f.1`, `127.1` and `2130706433` as
/// addresses too, so a name must not end in a number.
pub(crate) fn is_host(host: &str) -> bool {
    let label = |it: &str| {
        let fits = |it: u8| it.is_ascii_alphanumeric() || it == b'-';
        (1..=63).contains(&it.len()) && it.bytes().all(fits) && !it.starts_with('-') && !it.ends_with('-')
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.starts_with(|it: char| it.is_ascii_digit()) {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    host.len() <= 253 && host.split('.').all(label)
}

/// Checks a path that ends in a repository's name and has no parts to normalise.
fn check_path(path: &str) -> Result<(), InvalidGitUrl> {
    let path = path.trim_end_matches('/');
    let name = path.rsplit(['/', ':']).next().unwrap_or_default();
    let is_dots = |part: &str| {
        let part = part.to_ascii_lowercase().replace("%2e", ".");
        part == "." || part == ".."
    };
    if matches!(name, "" | ".git") || path.split(['/', ':']).any(is_dots) {
        return Err(InvalidGitUrl::Path);
    }
    let bad = path.contains(['[', ']']) || path.split('%').skip(1).any(|it| !is_escape(it));
    if bad { Err(InvalidGitUrl::Character) } else { Ok(()) }
}

/// Whether two hexadecimal digits encode no control character.
fn is_escape(rest: &str) -> bool {
    let digits = rest.get(..2).filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()));
    let byte = digits.and_then(|it| u8::from_str_radix(it, 16).ok());
    byte.is_some_and(|it| !it.is_ascii_control())
}

#[cfg(test)]
mod tests;

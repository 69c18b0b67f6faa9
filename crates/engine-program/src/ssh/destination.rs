//! The address of an engine on another machine: `ssh://[USER@]HOST[:PORT][/SOCKET]`.

use coracle_types::EngineKind;

/// A machine, and the socket of its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshDestination {
    user: Option<String>,
    host: String,
    port: Option<u16>,
    /// The path of the engine's socket on that machine.
    pub(super) socket: String,
}

impl SshDestination {
    /// Parses an endpoint. Without a path it has the socket that the engine has by default, which is known for root's
    /// Podman and for Docker.
    ///
    /// # Errors
    /// What is wrong with the address.
    pub fn parse(engine: EngineKind, endpoint: &str) -> Result<Self, &'static str> {
        let rest = endpoint.strip_prefix("ssh://").ok_or("it does not begin with `ssh://`")?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let (host, port) = split_port(host)?;
        // `ssh` would read a name that begins with `-` as an option, and a colon separates the two sockets of a forward.
        if !user.is_none_or(|it| is_name(it, "._-")) || !is_name(host, ".-_:") {
            return Err("it has no user and host name of letters, digits, `.`, `_` and `-`");
        }
        let socket = match path {
            "" | "/" => default_socket(engine, user)?,
            path if path.chars().all(|it| it.is_ascii_alphanumeric() || "/._-@+".contains(it)) => path,
            _ => return Err("its path has other characters than letters, digits and `/._-@+`"),
        };
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port, socket: socket.to_owned() })
    }

    /// The engine there belongs to one user, judged by the directory of its socket.
    pub fn is_rootless(&self) -> bool {
        self.socket.starts_with("/run/user/")
    }

    /// The words of `ssh` for the machine.
    pub(super) fn words(&self) -> Vec<String> {
        let port = self.port.map(|it| ["-p".to_owned(), it.to_string()]);
        let user = self.user.as_ref().map(|it| ["-l".to_owned(), it.clone()]);
        port.into_iter().chain(user).flatten().chain(["--".to_owned(), self.host.clone()]).collect()
    }
}

/// A host name and a port. An IPv6 address is in brackets.
fn split_port(host: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(inside) => inside.split_once(']').ok_or("a bracket is missing")?,
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    match port.strip_prefix(':') {
        Some(port) => Ok((name, Some(port.parse().map_err(|_| "its port is not a number")?))),
        None if port.is_empty() => Ok((name, None)),
        None => Err("its port is not a number"),
    }
}

fn is_name(text: &str, more: &str) -> bool {
    text.starts_with(|it: char| it.is_ascii_alphanumeric() || it == ':' || it == '_')
        && text.chars().all(|it| it.is_ascii_alphanumeric() || more.contains(it))
}

fn default_socket(engine: EngineKind, user: Option<&str>) -> Result<&'static str, &'static str> {
    match (engine, user) {
        (EngineKind::Docker, _) => Ok("/var/run/docker.sock"),
        (EngineKind::Podman, Some("root")) => Ok("/run/podman/podman.sock"),
        _ => Err(
            "it needs the path of Podman's socket, such as `/run/user/1000/podman/podman.sock` with the user's id there",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docker(endpoint: &str) -> Result<SshDestination, &'static str> {
        SshDestination::parse(EngineKind::Docker, endpoint)
    }

    #[test]
    fn user_port_and_socket_may_be_missing() {
        let whole = docker("ssh://ada@build.example:2222/run/user/1000/docker.sock").unwrap();
        assert_eq!(whole.words(), ["-p", "2222", "-l", "ada", "--", "build.example"]);
        assert_eq!((whole.socket.as_str(), whole.is_rootless()), ("/run/user/1000/docker.sock", true));
        let short = docker("ssh://build").unwrap();
        assert_eq!(short.words(), ["--", "build"]);
        assert_eq!((short.socket.as_str(), short.is_rootless()), ("/var/run/docker.sock", false));
        assert_eq!(docker("ssh://root@[fe80::1]:22/").unwrap().words(), ["-p", "22", "-l", "root", "--", "fe80::1"]);
    }

    #[test]
    fn the_socket_of_a_users_podman_has_to_be_named() {
        let podman = |endpoint| SshDestination::parse(EngineKind::Podman, endpoint).map(|it| it.socket);
        assert_eq!(podman("ssh://root@there").as_deref(), Ok("/run/podman/podman.sock"));
        assert!(podman("ssh://ada@there").unwrap_err().contains("Podman's socket"));
        assert_eq!(
            podman("ssh://ada@there/run/user/7/podman/podman.sock").as_deref(),
            Ok("/run/user/7/podman/podman.sock")
        );
    }

    #[test]
    fn nothing_in_an_address_becomes_an_option_or_another_forward() {
        for endpoint in [
            "ssh://-oProxyCommand=x",
            "ssh://-l@there",
            "ssh://",
            "ssh://me@",
            "ssh://me@there:port",
            "ssh://me@there/run/a:b",
            "ssh://me@there/run/a b",
            "ssh://me@there/run/$(id)",
            "ssh://me there",
            "tcp://there",
        ] {
            assert!(docker(endpoint).is_err(), "{endpoint}");
        }
    }
}

//! A port of a server in a container, as callers write it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A port inside, on the loopback or at an address. Names are invalid, because the guest uses no name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortTarget {
    /// `None` for `localhost`, which is `127.0.0.1` or `::1`.
    address: Option<IpAddr>,
    port: u16,
}

/// A text that is not a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no port from 1 to 65535 and no `address:port`")]
pub struct InvalidPort(String);

impl PortTarget {
    /// Reads `8080`, `10.0.0.2:8080`, `[::1]:8080` or `localhost:8080`.
    ///
    /// # Errors
    /// [`InvalidPort`] for everything else, a host name too.
    pub fn parse(text: &str) -> Result<Self, InvalidPort> {
        let invalid = || InvalidPort(text.chars().take(80).collect());
        let (host, port) = text.rsplit_once(':').unwrap_or(("localhost", text));
        let digits = port.bytes().all(|it| it.is_ascii_digit());
        let port = port.parse().ok().filter(|it| digits && *it > 0).ok_or_else(invalid)?;
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|it| it.contains(':')),
            None => Some(host).filter(|it| !it.contains(':')),
        };
        let address = match bare.ok_or_else(invalid)? {
            "localhost" => None,
            other => Some(other.parse().map_err(|_| invalid())?),
        };
        Ok(Self { address, port })
    }
}

impl PortTarget {
    /// The addresses at which a server may be.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let hosts = match self.address {
            Some(address) => vec![address],
            None => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        };
        hosts.into_iter().map(|host| SocketAddr::new(host, self.port)).collect()
    }
}

impl fmt::Display for PortTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => SocketAddr::new(address, self.port).fmt(f),
            None => write!(f, "localhost:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_number_with_an_optional_address() {
        for (given, read) in [
            ("8080", "localhost:8080"),
            ("localhost:1", "localhost:1"),
            ("10.0.0.2:80", "10.0.0.2:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(PortTarget::parse(given).unwrap().to_string(), read);
        }
        let addresses = PortTarget::parse("80").unwrap().addresses();
        assert_eq!(addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.1:80", "[::1]:80"]);
        for bad in ["", "0", "65536", "+80", "db:5432", ":80", "::1:80", "[10.0.0.1]:80", "[::1:80", "80:", "a b"] {
            assert!(PortTarget::parse(bad).is_err(), "{bad}");
        }
    }
}

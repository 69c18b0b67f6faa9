//! The destination of a request.

use std::net::{IpAddr, SocketAddr};

use hyper::{Method, Uri};

use crate::policy::EgressHost;

/// The destination of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EgressTarget {
    pub(crate) host: EgressHost,
    pub(crate) port: u16,
}

impl EgressTarget {
    /// Parses the target of a CONNECT, or of a request with an absolute http URL.
    pub(crate) fn from_request(method: &Method, uri: &Uri) -> Option<Self> {
        let port = match (method == Method::CONNECT, uri.scheme_str()) {
            (true, None) => uri.port_u16()?,
            (false, Some("http")) => uri.port_u16().unwrap_or(80),
            _ => return None,
        };
        // User information before an `@` is not part of the destination.
        let authority = uri.authority()?.as_str();
        let host = EgressHost::parse(uri.host()?).filter(|_| !authority.contains('@') && port > 0)?;
        Some(Self { host, port })
    }

    /// Returns the rule that allows it: 443 is the port of a rule without one.
    pub(crate) fn rule(&self) -> String {
        self.authority(443)
    }

    /// Returns host and port as a URL has them, whose scheme has that default port.
    pub(crate) fn authority(&self, default: u16) -> String {
        match &self.host {
            EgressHost::Address(IpAddr::V6(it)) if self.port == default => format!("[{it}]"),
            host if self.port == default => host.to_string(),
            _ => self.shown(),
        }
    }

    pub(crate) fn shown(&self) -> String {
        match &self.host {
            EgressHost::Address(it) => SocketAddr::new(*it, self.port).to_string(),
            host => format!("{host}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connect_and_an_absolute_url_have_a_target() {
        let of =
            |method: Method, uri: &str| EgressTarget::from_request(&method, &uri.parse().ok()?).map(|it| it.shown());
        assert_eq!(of(Method::CONNECT, "Example.com:443").unwrap(), "example.com:443");
        assert_eq!(of(Method::CONNECT, "[::1]:443").unwrap(), "[::1]:443");
        assert_eq!(of(Method::GET, "http://example.com/x?y").unwrap(), "example.com:80");
        assert_eq!(of(Method::POST, "http://example.com:8080").unwrap(), "example.com:8080");
        let of_v6 = EgressTarget::from_request(&Method::GET, &"http://[fd00::1]/".parse().unwrap()).unwrap();
        assert_eq!((of_v6.authority(80), of_v6.authority(443)), ("[fd00::1]".into(), "[fd00::1]:80".into()));
        for (method, odd) in [
            (Method::CONNECT, "example.com"),
            (Method::CONNECT, "u@example.com:443"),
            (Method::CONNECT, "example.com:0"),
            (Method::GET, "/path"),
            (Method::GET, "https://example.com/"),
            (Method::GET, "http://u:p@example.com/"),
            (Method::GET, "ftp://example.com/"),
        ] {
            assert_eq!(of(method, odd), None, "{odd}");
        }
    }
}

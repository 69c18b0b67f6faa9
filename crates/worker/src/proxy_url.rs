//! The proxy's address for model requests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use coracle_sandbox::{Code, Failure, Result};

/// The base URL of the model routes: plain HTTP on this machine, since a sandbox has no other connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyUrl {
    pub(crate) at: SocketAddr,
    /// Without a slash at its end.
    pub(crate) path: String,
}

impl ProxyUrl {
    /// Parses a URL such as `http://127.0.0.1:3129/proxy/v1`.
    ///
    /// # Errors
    /// `proxy_required`: the URL is empty, or its host is not this machine.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Failure::new(Code::ProxyRequired, "LLM_PROXY_URL is not `http://`, an address of this machine, and a port.")
        };
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let at = match host.split_once("localhost:") {
            Some(("", port)) => port.parse().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
            _ => host.parse::<SocketAddr>().ok(),
        };
        let at = at.filter(|it| it.ip().is_loopback()).ok_or_else(wrong)?;
        let plain = path.bytes().all(|it| it.is_ascii_graphic() && !b"?#".contains(&it));
        if !plain {
            return Err(wrong());
        }
        Ok(Self { at, path: path.trim_end_matches('/').to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x48_only_an_address_of_this_machine_is_accepted() {
        let parsed = |text: &str| ProxyUrl::parse(text).map(|it| (it.at.to_string(), it.path)).ok();
        let there = |at: &str, path: &str| Some((at.to_owned(), path.to_owned()));
        assert_eq!(parsed("http://127.0.0.1:3129/proxy/v1"), there("127.0.0.1:3129", "/proxy/v1"));
        assert_eq!(parsed("http://localhost:1/"), there("127.0.0.1:1", ""));
        assert_eq!(parsed("http://[::1]:80"), there("[::1]:80", ""));
        for text in [
            "",
            "https://127.0.0.1:3129/",
            "http://127.0.0.1/",
            "http://api.example.com:80/v1",
            "http://10.0.0.1:80/",
            "http://localhost.example.com:80/",
            "http://x@localhost:80/",
            "http://127.0.0.1:80/a b",
            "http://127.0.0.1:80/?key=1",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}

//! Resolves names outside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::{fmt, io};

use async_trait::async_trait;

/// Resolves a name, on the host.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync {
    /// Returns all addresses of the name.
    ///
    /// # Errors
    /// If the name does not exist.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system. Names below `localhost` are this host's own, as RFC 6761 says, also where the
/// system does not resolve them.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        if name.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|it| it.ip()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_below_localhost_are_loopback() {
        let found = SystemResolver.resolve("api.localhost").await.unwrap();
        assert!(found.len() == 2 && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }
}

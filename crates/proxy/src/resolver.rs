//! Resolves names outside.

use std::net::IpAddr;
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

/// The resolver of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|it| it.ip()).collect())
    }
}

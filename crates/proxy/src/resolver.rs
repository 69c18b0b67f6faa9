//! Finds the addresses of names outside.

use std::fmt;
use std::io;
use std::net::IpAddr;

use async_trait::async_trait;

/// Finds the addresses of a name, on the host.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync {
    /// All of them.
    ///
    /// # Errors
    /// When there is no such name.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|it| it.ip()).collect())
    }
}

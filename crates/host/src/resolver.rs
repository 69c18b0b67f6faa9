//! Resolves the addresses of a URL's host.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::address::is_public;
use crate::git_url::GitUrl;

/// Timeout of a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a host may not be connected to.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// One of its addresses is not public: the rule `repo.private`.
    #[error("`{host}` has the address {address}, which is not public")]
    Private {
        /// The host.
        host: String,
        /// The first such address.
        address: IpAddr,
    },
    /// It has no address.
    #[error("`{host}` has no address")]
    Unknown {
        /// The host.
        host: String,
        /// The resolver's error.
        #[source]
        source: io::Error,
    },
    /// No name server answered in time.
    #[error("no name server answered for `{host}` within {} s", LOOKUP_TIMEOUT.as_secs())]
    Slow {
        /// The host.
        host: String,
    },
}

/// Resolves the addresses of a URL's host, all of which have to be public.
///
/// A later connection must use these addresses: a second lookup may have another answer.
///
/// # Errors
/// [`ResolveError`].
pub async fn addresses_public(url: &GitUrl) -> Result<Vec<SocketAddr>, ResolveError> {
    let host = || url.host().to_owned();
    let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((url.host(), url.port())));
    let found = lookup.await.map_err(|_| ResolveError::Slow { host: host() })?;
    let found: Vec<SocketAddr> = found.map_err(|source| ResolveError::Unknown { host: host(), source })?.collect();
    if let Some(private) = found.iter().find(|it| !is_public(it.ip())) {
        return Err(ResolveError::Private { host: host(), address: private.ip() });
    }
    if found.is_empty() {
        return Err(ResolveError::Unknown { host: host(), source: io::ErrorKind::NotFound.into() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git_url::GitRules;

    #[tokio::test]
    async fn a_host_that_is_an_address_needs_no_lookup() {
        let everything = GitRules { allow_private: true, ssh: true };
        let resolve = async |text: &str| addresses_public(&GitUrl::parse(text, everything).unwrap()).await;
        assert_eq!(resolve("https://8.8.8.8:99/x").await.unwrap(), ["8.8.8.8:99".parse().unwrap()]);
        assert_eq!(resolve("https://[2606:4700::1]/x").await.unwrap(), ["[2606:4700::1]:443".parse().unwrap()]);
        for private in ["https://10.0.0.1/x", "http://[::1]/x", "https://localhost/x", "git@127.0.0.1:x"] {
            assert!(matches!(resolve(private).await, Err(ResolveError::Private { .. })), "{private}");
        }
        assert!(matches!(resolve("https://no-such-host.invalid/x").await, Err(ResolveError::Unknown { .. })));
    }
}

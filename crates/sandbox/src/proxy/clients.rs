//! How the host speaks to those outside: no redirect is followed, no proxy of the environment used, no cookie kept.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};

use super::Pace;
use super::egress::{Resolver, is_global};
use crate::Failure;

#[derive(Debug)]
pub(super) struct Clients {
    /// To wherever the person said.
    pub(super) any: Client,
    /// To names that lead to the internet at large, and nowhere else.
    pub(super) outside: Client,
}

impl Clients {
    pub(super) fn new(resolver: &Arc<dyn Resolver>, pace: Pace) -> Result<Self, Failure> {
        // The first one in a process counts, and any will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let with = |only_outside| Found { resolver: resolver.clone(), only_outside };
        let built = |it: ClientBuilder| {
            let it = it.redirect(Policy::none()).no_proxy().referer(false).connect_timeout(pace.connect);
            // What is sent again without being asked is counted once and paid twice.
            it.retry(reqwest::retry::never()).build().map_err(|err| Failure::internal(err.without_url()))
        };
        Ok(Self {
            any: built(Client::builder().dns_resolver(with(false)))?,
            outside: built(Client::builder().dns_resolver(with(true)))?,
        })
    }
}

struct Found {
    resolver: Arc<dyn Resolver>,
    only_outside: bool,
}

impl Resolve for Found {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, only_outside) = (self.resolver.clone(), self.only_outside);
        Box::pin(async move {
            let found = resolver.resolve(name.as_str()).await?;
            let found: Vec<_> = found.into_iter().filter(|it| !only_outside || is_global(*it)).collect();
            if found.is_empty() {
                return Err("no address that may be reached".into());
            }
            Ok(Box::new(found.into_iter().map(|it| SocketAddr::new(it, 0))) as Addrs)
        })
    }
}

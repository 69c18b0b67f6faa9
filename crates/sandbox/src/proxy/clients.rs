//! How the host speaks to those outside: to any address that the person named, or to global ones only.

use std::io;
use std::sync::Arc;

use super::Timeouts;
use super::egress::{Resolver, is_global};
use crate::Failure;
use crate::http::{HttpClient, Lookup};

#[derive(Debug)]
pub(super) struct Clients {
    /// To wherever the person said.
    pub(super) any: HttpClient,
    /// To names that lead to the internet at large, and nowhere else.
    pub(super) outside: HttpClient,
}

impl Clients {
    pub(super) fn new(resolver: &Arc<dyn Resolver>, pace: Timeouts) -> Result<Self, Failure> {
        let client = |only_outside| HttpClient::new(lookup(resolver.clone(), only_outside), pace.connect);
        Ok(Self { any: client(false)?, outside: client(true)? })
    }
}

fn lookup(resolver: Arc<dyn Resolver>, only_outside: bool) -> Lookup {
    Arc::new(move |name| {
        let resolver = resolver.clone();
        Box::pin(async move {
            let mut found = resolver.resolve(&name).await?;
            found.retain(|it| !only_outside || is_global(*it));
            if found.is_empty() {
                return Err(io::Error::other("no address that may be reached"));
            }
            Ok(found)
        })
    })
}

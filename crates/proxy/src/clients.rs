//! HTTP clients for requests to the outside: to any address that the user configured, or to public addresses only.

use std::io;
use std::sync::Arc;

use coracle_host::address::is_public;
use coracle_http::{HttpClient, Lookup};
use coracle_types::failure::Failure;

use crate::resolver::Resolver;
use crate::settings::Timeouts;

#[derive(Debug)]
pub(crate) struct Clients {
    /// For every address that is configured.
    pub(crate) any: HttpClient,
    /// For names that resolve to public addresses only.
    pub(crate) outside: HttpClient,
}

impl Clients {
    pub(crate) fn new(resolver: &Arc<dyn Resolver>, pace: Timeouts) -> Result<Self, Failure> {
        let client = |only_outside| {
            HttpClient::new(lookup(resolver.clone(), only_outside), pace.connect).map_err(Failure::internal)
        };
        Ok(Self { any: client(false)?, outside: client(true)? })
    }
}

fn lookup(resolver: Arc<dyn Resolver>, only_outside: bool) -> Lookup {
    Arc::new(move |name| {
        let resolver = resolver.clone();
        Box::pin(async move {
            let mut found = resolver.resolve(&name).await?;
            found.retain(|it| !only_outside || is_public(*it));
            if found.is_empty() {
                return Err(io::Error::other("no address that may be reached"));
            }
            Ok(found)
        })
    })
}

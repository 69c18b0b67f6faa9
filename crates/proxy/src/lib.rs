//! The proxy of one container: its way out to models, to repositories, and to names that are allowed.
//!
//! A [`Proxy`] belongs to one container and listens for it alone. Each connection begins with a line that holds the
//! container's token, put there by its guest. What a container may do is its [`Grants`](policy::Grants), replaced as a
//! whole and looked at for each connection and each request, so that a revoked token and a removed rule count at once.
//!
//! **Invariant:** without grants, or without a token in them, nothing is allowed.
//! **Invariant:** no key goes in: it is added on the way out, and taken out of what comes back.
//! **Invariant:** a program inside learns no address of a provider, and nothing is sent anywhere before that was decided.
//! **Invariant:** costs are counted here, whatever a program inside reports.
//!
//! ```
//! use coracle_proxy::policy::{EgressPolicy, Grants, Tokens};
//! use coracle_proxy::token::{TokenHash, fresh_token};
//! use coracle_proxy::{Proxy, ProxySettings};
//! use coracle_types::ProfileName;
//! use coracle_types::failure::Failure;
//!
//! # fn main() -> Result<(), Failure> {
//! let proxy = Proxy::new(ProxySettings::new("web"))?;
//! let token = fresh_token(); // the container gets it, the host keeps its hash
//! let net = Some(TokenHash::from_token(token.reveal()));
//! let mut grants = Grants::new(ProfileName::parse("default")?, Tokens { net, ..Tokens::default() });
//! grants.egress = Some(EgressPolicy::parse(&["crates", "example.com:443"])?);
//! proxy.grant(Some(grants));
//! assert_eq!(proxy.metered().requests, 0);
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod body;
mod caller;
mod clients;
mod egress;
mod entry;
pub mod environment;
mod git;
mod listener;
mod listeners_inside;
mod llm;
mod log;
mod meter;
pub mod policy;
mod private_subnet;
mod proxy;
mod proxy_header;
mod rate_limit;
mod resolver;
mod response;
mod routes;
mod scrub;
mod selftest;
mod settings;
pub mod token;
mod usage;

/// Where a proxy takes connections: sockets, an address, or a guest's link.
pub mod listen {
    pub use crate::listener::ProxyListener;
    pub use crate::listeners_inside::Listeners;
    pub use crate::private_subnet::PrivateSubnet;
}

pub use log::ProxyEvent;
pub use meter::UsageTotals;
pub use proxy::{Port, Proxy};
pub use resolver::{Resolver, SystemResolver};
pub use selftest::self_test;
pub use settings::{Observer, ProxySettings, Timeouts, TokenSource};

//! The proxy of one container: its access to models, to repositories, and to allowed names.
//!
//! A [`Proxy`] belongs to one container and listens for it alone. Each connection begins with a line that contains the
//! container's token, which its guest adds. The permissions of a container are its [`Grants`](policy::Grants). They are
//! replaced as a whole and checked for each connection and each request, so that a revoked token and a removed rule
//! take effect at once.
//!
//! **Invariant:** without grants, or without a token in them, nothing is allowed.
//! **Invariant:** keys never enter the container: they are added to requests, and removed from responses.
//! **Invariant:** programs in the container never see the address of a provider, and nothing is sent before the
//! policy has allowed it.
//! **Invariant:** a request that the user allows beyond the policy is allowed by its exact rule, and by no other.
//! **Invariant:** usage is counted here, whatever a program in the container reports.
//! **Invariant:** TLS is ended only for hosts whose requests have rules or secrets, or are [recorded](record), with an
//! [`Authority`] that one container trusts. All other connections pass as they are.
//! **Invariant:** a proxy that [replays](replay) a record connects to nothing.
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
//! let token = fresh_token(); // the container gets it, the host stores its hash
//! let net = Some(TokenHash::from_token(token.reveal()));
//! let mut grants = Grants::new(ProfileName::parse("default")?, Tokens { net, ..Tokens::default() });
//! grants.egress = Some(EgressPolicy::parse(&["crates", "example.com:443"])?.into());
//! proxy.grant(Some(grants));
//! assert_eq!(proxy.metered().requests, 0);
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod approval;
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
mod passing_body;
pub mod policy;
mod private_subnet;
mod proxy;
mod proxy_header;
mod rate_limit;
pub mod record;
pub mod replay;
mod resolver;
mod response;
mod routes;
mod scrub;
mod selftest;
mod settings;
mod tls;
pub mod token;
mod usage;

/// The listeners of a proxy: sockets, an address, or the connection to a guest.
pub mod listen {
    pub use crate::listener::ProxyListener;
    pub use crate::listeners_inside::Listeners;
    pub use crate::private_subnet::PrivateSubnet;
}

pub use approval::{Approvals, Decision};
pub use log::ProxyEvent;
pub use meter::UsageTotals;
pub use proxy::{Port, Proxy};
pub use resolver::{Resolver, SystemResolver};
pub use selftest::{SELF_TEST, Wall, self_test};
pub use settings::{Observer, ProxySettings, Timeouts, TokenSource};
pub use tls::Authority;

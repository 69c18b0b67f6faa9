//! The container's connections to the host's proxy, and a probe of its network.

use std::net::SocketAddr;

use coracle_protocol::relay::{EgressReport, MAX_TOKEN, OpenProxyPorts, ProbeEgress};
use coracle_protocol::{ErrorCode, MAX_SESSION, RpcError};
use coracle_types::{Result, Secret};
use zeroize::Zeroize as _;

use crate::call::{refused, too_long};
use crate::link::Link;

/// How a connection reaches the host's proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upstream {
    /// Through sockets that are mounted at `/.coracle/proxy`.
    #[default]
    Sockets,
    /// Through [tunnels](Link::accept_tunnel) of the link.
    Link,
    /// Through a network that host and container share.
    Tcp {
        /// The host's address for models and repositories.
        api: SocketAddr,
        /// The host's address for other connections.
        egress: SocketAddr,
    },
}

impl Link {
    /// Makes the guest listen on 127.0.0.1:3128 and 127.0.0.1:3129 inside, and forward connections to the sockets of the
    /// proxy that are mounted at `/.coracle/proxy`, to [tunnels](Self::accept_tunnel), or to addresses of the host. Each
    /// connection starts with this token.
    ///
    /// Calling it again replaces the token, the upstream, and `git_config`, the text of `/.coracle/run/gitconfig`, unless that
    /// is empty. The settings are lost when the guest ends.
    ///
    /// # Errors
    /// [`Error::Refused`](coracle_types::Error::Refused) for an invalid token, and if another program listens there inside.
    pub async fn relay(&self, upstream: Upstream, token: &Secret, git_config: &str) -> Result<()> {
        let token = token.reveal();
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(refused(RpcError::new(ErrorCode::Invalid, "invalid token for the proxy")));
        }
        if token.len() + git_config.len() > MAX_SESSION {
            return Err(too_long(format!("more than {} MiB", MAX_SESSION >> 20)));
        }
        let at = match upstream {
            Upstream::Tcp { api, egress } => Some([api, egress]),
            Upstream::Sockets | Upstream::Link => None,
        };
        let by_link = upstream == Upstream::Link;
        let mut call = OpenProxyPorts { token: token.into(), git_config: git_config.into(), by_link, at };
        let opened = self.call(&call).await;
        call.token.0.zeroize();
        opened
    }

    /// Probes what can be reached from inside, directly and through the proxy.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn probe(&self, probe: ProbeEgress) -> Result<EgressReport> {
        self.call(&probe).await
    }
}

//! The ways out of a container: its relays to the proxy, and whether there is any other.

use std::net::SocketAddr;

use coracle_protocol::relay::{EgressReport, MAX_TOKEN, OpenProxyPorts, ProbeEgress};
use coracle_protocol::{ErrorCode, MAX_SESSION, RpcError};
use coracle_types::{Result, Secret};
use zeroize::Zeroize as _;

use crate::call::{refused, too_long};
use crate::link::Link;

/// How a connection gets from a relay to the host's proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upstream {
    /// By sockets that are bound at `/.coracle/proxy`.
    #[default]
    Sockets,
    /// By [outlets](Link::outlet) of the link.
    Link,
    /// By a network that host and container are both on.
    Tcp {
        /// Where the host listens for models and repositories.
        api: SocketAddr,
        /// And for names outside.
        egress: SocketAddr,
    },
}

impl Link {
    /// Has the guest listen on 127.0.0.1:3128 and 127.0.0.1:3129 inside, and relay what comes there to the sockets of the
    /// proxy that are bound at `/.coracle/proxy`, to [outlets](Self::outlet), or to addresses of the host, each connection with
    /// this token before it.
    /// Said again it replaces the token, the way, and `git_config`, the text of `/.coracle/run/gitconfig`, unless that is
    /// empty. Gone with the guest.
    ///
    /// # Errors
    /// [`Error::Refused`](coracle_types::Error::Refused) for what is no token, and when somebody else listens there inside.
    pub async fn relay(&self, way: Upstream, token: &Secret, git_config: &str) -> Result<()> {
        let token = token.reveal();
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(refused(RpcError::new(ErrorCode::Invalid, "that is no token of a relay")));
        }
        if token.len() + git_config.len() > MAX_SESSION {
            return Err(too_long(format!("more than {} MiB", MAX_SESSION >> 20)));
        }
        let at = match way {
            Upstream::Tcp { api, egress } => Some([api, egress]),
            Upstream::Sockets | Upstream::Link => None,
        };
        let by_link = way == Upstream::Link;
        let mut call = OpenProxyPorts { token: token.into(), git_config: git_config.into(), by_link, at };
        let opened = self.call(&call).await;
        call.token.0.zeroize();
        opened
    }

    /// What can be reached from inside, directly and by the relays.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn probe(&self, probe: ProbeEgress) -> Result<EgressReport> {
        self.call(&probe).await
    }
}

//! The ways out of a container: its relays to the proxy, and whether there is any other.

use std::net::SocketAddr;
use std::time::Duration;

use coracle_protocol::relay::{EgressReport, MAX_TOKEN, OpenProxyPorts, ProbeEgress};
use coracle_protocol::{CallReply, ErrorCode, Request, RpcError};
use coracle_types::{Result, Secret};
use zeroize::Zeroizing;

use crate::call::{CallOptions, DEFAULT_TIMEOUT, ReplyKind, refused};
use crate::jobs::holding;
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
        let mut payload = Zeroizing::new(Vec::with_capacity(token.len() + git_config.len()));
        payload.extend_from_slice(token);
        payload.extend_from_slice(git_config.as_bytes());
        let token = u32::try_from(token.len()).unwrap_or_default();
        let at = match way {
            Upstream::Tcp { api, egress } => Some([api, egress]),
            Upstream::Sockets | Upstream::Link => None,
        };
        self.tell("relay", &payload, |bytes| {
            Request::Relay(OpenProxyPorts { token, bytes, by_link: way == Upstream::Link, at })
        })
        .await
    }

    /// What can be reached from inside, directly and by the relays.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn probe(&self, probe: ProbeEgress) -> Result<EgressReport> {
        let patience = DEFAULT_TIMEOUT + Duration::from_millis(probe.within_ms);
        let request = CallOptions { patience, ..CallOptions::new("probe", holding!(Probed)) };
        Ok(self.ask(request, || Request::Probe(probe.clone())).await?.0)
    }
}

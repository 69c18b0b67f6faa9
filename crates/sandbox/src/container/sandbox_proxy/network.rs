//! A network that the container is alone on with this host.
//!
//! By it the proxy listens at the address by which the container sees this host. The ports are remembered: the process that
//! comes next takes the same, since the container knows them. A process that listens on a removed network gives up its
//! place to another.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use coracle_host::state_file;
use coracle_proxy::Proxy;
use coracle_proxy::listen::{PrivateSubnet, ProxyListener};

use super::SandboxProxy;
use crate::{Code, Failure, Result};

/// What else there is where an engine's network does not do.
pub(in crate::container) const OTHER_WAYS: &str = "set `proxy.transport` to \"link\" or \"unix\", or leave it out";

impl SandboxProxy {
    /// The container that runs is on that network with this host.
    ///
    /// # Errors
    /// `proxy_unreachable`: this process is to listen there, and cannot.
    pub(in crate::container) fn reached_at(&self, at: PrivateSubnet) -> Result<()> {
        let mut state = self.state();
        if state.at.replace(at) != Some(at) {
            state.listens = None;
        }
        if state.uses > 0 { self.listen(&mut state) } else { Ok(()) }
    }

    /// The address of the proxy on the container's network: of this process, or the one that came first.
    pub(in crate::container) fn places(&self) -> Option<[SocketAddr; 2]> {
        let at = self.address()?;
        let places: Option<[SocketAddr; 2]> = state_file::read(&self.remembered()).ok().flatten();
        places.filter(|all| all.iter().all(|it| it.ip() == at))
    }

    /// That address of this host.
    pub(in crate::container) fn address(&self) -> Option<IpAddr> {
        self.state().at.map(|it| it.gateway)
    }

    fn remembered(&self) -> PathBuf {
        self.dir.root().join("proxy-at.json")
    }

    pub(super) fn listen_at(&self, proxy: &Proxy, between: PrivateSubnet) -> Result<ProxyListener> {
        let at = between.gateway;
        let before: Option<[SocketAddr; 2]> = state_file::read(&self.remembered()).ok().flatten();
        let ports = before.filter(|all| all.iter().all(|it| it.ip() == at)).map(|all| all.map(|it| it.port()));
        let (listening, places) = ProxyListener::listen_at(proxy, between, ports).map_err(|err| {
            let message = format!("The proxy cannot listen at {at}, which is the engine's gateway: {err}.");
            Failure::new(Code::ProxyUnreachable, message).hint(OTHER_WAYS)
        })?;
        state_file::write(&self.remembered(), &places)?;
        Ok(listening)
    }
}

/// Whether this host has that address. Nothing is sent.
pub(super) fn is_here(at: IpAddr) -> bool {
    UdpSocket::bind((at, 0)).is_ok()
}

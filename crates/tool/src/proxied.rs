//! What containers have in common whose only way out is a proxy on the host: the names that it allows, and the certificates
//! of the host, without which programs trust nobody behind a company's own network.

use std::path::Path;

use async_trait::async_trait;
use coracle_provision::certs::{self, Additions};
use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{Access, ContainerPath, Ids, Link, Mount, Policy};
use coracle_sandbox::AtStart;
use coracle_sandbox::proxy::EgressPolicy;

use crate::config::{Egress, ProxyNetwork};
use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::ops::create::trusted_certificates;
use crate::resolve::Wanted;

/// Where the proxy's sockets are inside.
const PROXY_AT: &str = "/.coracle/proxy";

/// The names that may be reached; none without a network. What cannot be read allows nothing: it is a failure.
pub(crate) fn policy(cx: &Context, network: ProxyNetwork, egress: &Egress) -> Result<Option<EgressPolicy>, Failure> {
    if network == ProxyNetwork::None {
        return Ok(None);
    }
    if !cx.policy()?.open_network {
        let message = "`security.network` allows no container a way out, not even to the names of a list";
        return Err(Failure::new(Code::PolicyDenied, message).detail("rule", "network.open"));
    }
    Ok(Some(EgressPolicy::parse(&egress.allow)?))
}

/// The directory in which a container's own proxy listens, as the container sees it.
pub(crate) fn mount(sockets: &Path) -> Result<Mount, Failure> {
    let host = HostPath::open(sockets).map_err(|err| Failure::internal(format!("{err}")))?;
    Ok(Mount { host, at: ContainerPath::parse(PROXY_AT)?, access: Access::ReadOnly })
}

/// It lies in the state directory, of which no container gets anything else.
pub(crate) fn admit(policy: &mut Policy, sockets: &Path) {
    policy.allow_roots.push(sockets.to_owned());
    sockets.clone_into(&mut policy.scratch);
}

/// Authorities that the host trusts by itself, for the user inside who runs commands.
#[derive(Debug)]
pub(crate) struct HostCertificates {
    found: Additions,
    user: Ids,
}

impl HostCertificates {
    /// None where there is no network, or the host has none, or they are to stay on it.
    pub(crate) fn of(cx: &Context, network: ProxyNetwork, user: Ids) -> Option<Self> {
        if network == ProxyNetwork::None || !cx.config.auto_passthrough.ca_certificates {
            return None;
        }
        match trusted_certificates(cx) {
            Wanted::Yes(found) if !found.is_empty() => Some(Self { found, user }),
            _ => None,
        }
    }

    /// What tells programs of them.
    pub(crate) fn env(&self) -> impl Iterator<Item = (String, String)> + use<> {
        certs::VARIABLES.iter().map(|it| ((*it).to_owned(), certs::ASIDE.to_owned()))
    }
}

#[async_trait]
impl AtStart for HostCertificates {
    async fn run(&self, link: &Link) -> coracle_runtime::Result<()> {
        certs::bundle_aside(link, &self.found, self.user).await
    }
}

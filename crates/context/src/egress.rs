//! What containers have in common whose only way out is a proxy on the host: the names that it allows, and the certificates
//! of the host, without which programs trust nobody behind a company's own network.

use std::path::Path;

use async_trait::async_trait;
use coracle_client::Link;
use coracle_host::fs::HostPath;
use coracle_provision::certs::{self, ExtraCertificates};
use coracle_proxy::policy::EgressPolicy;
use coracle_runtime::{Access, Mount, Policy};
use coracle_sandbox::{StartHook, Transport};
use coracle_types::{ContainerPath, EngineKind, Ids};

use crate::config::{Config, Egress, NetworkGrant, ProxyNetwork, ProxyTransport};
use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::guest;
use crate::host_identity::trusted_certificates;
use crate::requested::Requested;

/// Where the proxy's sockets are inside.
const PROXY_AT: &str = "/.coracle/proxy";

/// The names that may be reached; none without a network. What cannot be read allows nothing: it is a failure.
pub fn policy(cx: &Context, network: ProxyNetwork, egress: &Egress) -> Result<Option<EgressPolicy>, Failure> {
    if network == ProxyNetwork::None {
        return Ok(None);
    }
    if cx.config.security.network == NetworkGrant::None {
        return Err(no_way_out("not even to the names of a list"));
    }
    Ok(Some(EgressPolicy::parse(&egress.allow)?))
}

/// Refuses a way out where the person allows none.
pub fn open(cx: &Context, what: &str) -> Result<(), Failure> {
    if cx.policy()?.open_network {
        return Ok(());
    }
    Err(no_way_out(what))
}

fn no_way_out(what: &str) -> Failure {
    let message = format!("`security.network` allows no container a way out, {what}");
    Failure::new(Code::PolicyDenied, message).detail("rule", "network.open").detail("setting", "security.network")
}

/// How the person wants them to reach it: the directory of a socket is a bind, which is not for containers that see nothing
/// of the host.
pub fn wanted(config: &Config) -> ProxyTransport {
    let binds = !config.copies_directories() && !config.is_strict();
    match config.proxy.transport {
        ProxyTransport::Auto if !binds => ProxyTransport::Link,
        named => named,
    }
}

/// How sandboxes reach theirs.
pub async fn transport_of_sandboxes(cx: &Context) -> Result<Transport, Failure> {
    match cx.config.proxy.transport {
        ProxyTransport::Tcp => Ok(Transport::Tcp),
        _ => transport(cx).await,
    }
}

/// How containers of sessions reach their proxy.
pub async fn transport(cx: &Context) -> Result<Transport, Failure> {
    Ok(match wanted(&cx.config) {
        ProxyTransport::Unix => Transport::Unix,
        ProxyTransport::Link => Transport::Link,
        // A session's container is on no network but the one that its own settings say.
        ProxyTransport::Auto | ProxyTransport::Tcp => {
            let runtime = cx.runtime().await?;
            let files = guest::shares_files(&*runtime);
            if files && shares_kernel(runtime.kind(), std::env::consts::OS) { Transport::Unix } else { Transport::Link }
        }
    })
}

/// Whether a socket of a host with that system is one inside, too: on the other side of a kernel it is only a file. Apple's
/// containers have a kernel each, and on a mac every other engine runs in a machine, even if it is spoken to by a socket.
fn shares_kernel(engine: EngineKind, system: &str) -> bool {
    match engine {
        EngineKind::Container | EngineKind::Kubernetes => false,
        EngineKind::Fake => true,
        EngineKind::Docker | EngineKind::Podman | EngineKind::Embedded => system == "linux",
    }
}

/// The directory in which a container's own proxy listens, as the container sees it.
pub fn mount(sockets: &Path) -> Result<Mount, Failure> {
    let host = HostPath::open(sockets).map_err(|err| Failure::internal(format!("{err}")))?;
    Ok(Mount { host, at: ContainerPath::parse(PROXY_AT)?, access: Access::ReadOnly })
}

/// It lies in the state directory, of which no container gets anything else.
pub fn admit(policy: &mut Policy, sockets: &Path) {
    policy.allow_roots.push(sockets.to_owned());
    sockets.clone_into(&mut policy.scratch);
}

/// Authorities that the host trusts by itself, for the user inside who runs commands.
#[derive(Debug)]
pub struct HostCertificates {
    found: ExtraCertificates,
    user: Ids,
}

impl HostCertificates {
    /// None where there is no network, or the host has none, or they are to stay on it.
    pub fn for_container(cx: &Context, has_network: bool, user: Ids) -> Option<Self> {
        if !has_network || !cx.config.auto_passthrough.ca_certificates {
            return None;
        }
        match trusted_certificates(cx) {
            Requested::Yes(found) if !found.is_empty() => Some(Self { found, user }),
            _ => None,
        }
    }

    /// What tells programs of them.
    pub fn env(&self) -> impl Iterator<Item = (String, String)> + use<> {
        certs::VARIABLES.iter().map(|it| ((*it).to_owned(), certs::ASIDE.to_owned()))
    }
}

#[async_trait]
impl StartHook for HostCertificates {
    async fn run(&self, link: &Link) -> coracle_types::Result<()> {
        certs::bundle_aside(link, &self.found, self.user).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_socket_is_bound_where_nothing_of_the_host_is() {
        let dir = tempfile::tempdir().unwrap();
        let by = async |text: &str| {
            let mut cx = Context::for_tests(dir.path());
            let own = Config::read(text, false).unwrap();
            let config = Config { engine: cx.config.engine, ..own };
            cx.config = std::sync::Arc::new(config);
            transport(&cx).await.unwrap()
        };
        assert_eq!(by("").await, Transport::Unix);
        assert_eq!(by("workspace.mode = \"copy\"").await, Transport::Link);
        assert_eq!(by("policy = \"strict\"").await, Transport::Link);
    }

    #[test]
    fn a_socket_leads_inside_only_where_the_kernel_is_the_same() {
        for (engine, system, shared) in [
            (EngineKind::Docker, "linux", true),
            (EngineKind::Podman, "linux", true),
            (EngineKind::Docker, "macos", false),
            (EngineKind::Podman, "macos", false),
            (EngineKind::Container, "macos", false),
        ] {
            assert_eq!(shares_kernel(engine, system), shared, "{engine:?} {system}");
        }
    }
}

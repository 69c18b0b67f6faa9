//! Outbound access through a proxy on the host: the allowed names, and the host's certificates, without which programs
//! trust no server behind a company's intercepting proxy.

use std::path::Path;

use async_trait::async_trait;
use coracle_client::Link;
use coracle_host::fs::HostPath;
use coracle_provision::certs::{self, ExtraCertificates};
use coracle_proxy::Authority;
use coracle_proxy::environment::{JAVA_OPTIONS, java_options};
use coracle_proxy::policy::EgressPolicy;
use coracle_runtime::{Access, Mount, Policy};
use coracle_sandbox::{SandboxDir, StartHook, Transport};
use coracle_types::{ContainerPath, EngineKind, Ids};

use crate::approvals::{ApprovalsFile, ProxiedContainer, ProxyApprovals, RuleList};
use crate::config::{Config, Egress, NetworkGrant, ProxyNetwork, ProxyTransport};
use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::guest;
use crate::host_identity::trusted_certificates;
use crate::requested::Requested;

/// Directory of the proxy's sockets in the container.
const PROXY_AT: &str = "/.coracle/proxy";

/// Returns the policy for allowed names; none without a network. Fails for invalid rules, so that nothing is allowed.
pub fn policy(cx: &Context, network: ProxyNetwork, egress: &Egress) -> Result<Option<EgressPolicy>, Failure> {
    if network == ProxyNetwork::None {
        return Ok(None);
    }
    if cx.config.security.network == NetworkGrant::None {
        return Err(no_way_out("not even to the names of a list"));
    }
    Ok(Some(EgressPolicy::parse(&egress.allow)?))
}

/// The user's decisions about what the policy of a proxy refuses. `name` is the container's for the user.
pub fn approvals(cx: &Context, dir: &SandboxDir, name: String, list: RuleList, policy: EgressPolicy) -> ProxyApprovals {
    let wait = list.table(&cx.config).approval_timeout.0;
    let container = ProxiedContainer { session: cx.call.session.clone(), name, list };
    ProxyApprovals::new(&ApprovalsFile::of(dir), container, policy, wait)
}

/// Fails if the configuration allows no outbound access.
pub fn open(cx: &Context, what: &str) -> Result<(), Failure> {
    if cx.policy()?.open_network {
        return Ok(());
    }
    Err(no_way_out(what))
}

fn no_way_out(what: &str) -> Failure {
    let message = format!("`security.network` allows no outbound access for containers, {what}");
    Failure::new(Code::PolicyDenied, message).detail("rule", "network.open").detail("setting", "security.network")
}

/// Returns the configured transport. The directory of a socket is a bind mount, which containers of `strict` do not
/// have.
pub fn wanted(config: &Config) -> ProxyTransport {
    let binds = !config.copies_directories() && !config.is_strict();
    match config.proxy.transport {
        ProxyTransport::Auto if !binds => ProxyTransport::Link,
        named => named,
    }
}

/// Returns the transport for sandboxes.
pub async fn transport_of_sandboxes(cx: &Context) -> Result<Transport, Failure> {
    match cx.config.proxy.transport {
        ProxyTransport::Tcp => Ok(Transport::Tcp),
        _ => transport(cx).await,
    }
}

/// Returns the transport for containers of sessions.
pub async fn transport(cx: &Context) -> Result<Transport, Failure> {
    Ok(match wanted(&cx.config) {
        ProxyTransport::Unix => Transport::Unix,
        ProxyTransport::Link => Transport::Link,
        // A session's container is only on the network of its own settings.
        ProxyTransport::Auto | ProxyTransport::Tcp => {
            let runtime = cx.runtime().await?;
            let files = guest::shares_files(&*runtime);
            if files && shares_kernel(runtime.kind(), std::env::consts::OS) { Transport::Unix } else { Transport::Link }
        }
    })
}

/// Whether a socket on the host works inside: under another kernel it is only a file. Apple's containers have their own
/// kernels, and on a Mac every other engine runs in a virtual machine, even if it has a local socket.
fn shares_kernel(engine: EngineKind, system: &str) -> bool {
    match engine {
        EngineKind::Container | EngineKind::Kubernetes => false,
        EngineKind::Fake => true,
        EngineKind::Docker | EngineKind::Podman | EngineKind::Embedded => system == "linux",
    }
}

/// Mounts the directory of a container's own proxy.
pub fn mount(sockets: &Path) -> Result<Mount, Failure> {
    let host = HostPath::open(sockets).map_err(|err| Failure::internal(format!("{err}")))?;
    Ok(Mount { host, at: ContainerPath::parse(PROXY_AT)?, access: Access::ReadOnly })
}

/// Allows the directory, which is in the state directory, of which containers get nothing else.
pub fn admit(policy: &mut Policy, sockets: &Path) {
    policy.allow_roots.push(sockets.to_owned());
    sockets.clone_into(&mut policy.scratch);
}

/// The certificate authorities that a container with a network needs, for the exec user.
#[derive(Debug)]
pub struct Certificates {
    found: ExtraCertificates,
    user: Ids,
}

impl Certificates {
    /// The host's own, if they are passed. None if there are none.
    pub fn of_host(cx: &Context, user: Ids) -> Option<Self> {
        let found = Self::passed(cx);
        (!found.is_empty()).then_some(Self { found, user })
    }

    /// The same and that of the container's proxy.
    pub fn with_proxy(cx: &Context, user: Ids, authority: &Authority) -> Self {
        Self { found: Self::passed(cx).and_pem(authority.certificate()), user }
    }

    fn passed(cx: &Context) -> ExtraCertificates {
        match trusted_certificates(cx) {
            Requested::Yes(found) if cx.config.auto_passthrough.ca_certificates => found,
            _ => ExtraCertificates::default(),
        }
    }

    /// Returns the variables with which programs find them.
    pub fn env() -> impl Iterator<Item = (String, String)> {
        certs::VARIABLES.iter().map(|it| ((*it).to_owned(), certs::ASIDE.to_owned()))
    }

    /// Returns the variable with which Java finds the proxy and its own store of them.
    pub fn java_env(store: &str) -> (String, String) {
        (JAVA_OPTIONS.to_owned(), java_options(store))
    }
}

#[async_trait]
impl StartHook for Certificates {
    async fn run(&self, link: &Link) -> coracle_types::Result<()> {
        certs::bundle_aside(link, &self.found, self.user).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn strict_containers_have_no_socket() {
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
    fn a_socket_works_inside_only_with_the_same_kernel() {
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

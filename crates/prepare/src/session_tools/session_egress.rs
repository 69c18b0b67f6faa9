//! Outbound access of a session's container: a proxy in this process that allows a list of names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use coracle_client::Link;
use coracle_context::approvals::RuleList;
use coracle_context::audit;
use coracle_context::config::{Config, Egress, ProxyNetwork};
use coracle_context::context::Context;
use coracle_context::egress::{self, Certificates};
use coracle_context::failure::{Code, Failure};
use coracle_context::recorded::{self, RecordName};
use coracle_context::secrets;
use coracle_provision::certs::JAVA_ASIDE;
use coracle_proxy::environment::PROXY_ENV;
use coracle_proxy::policy::{Grants, Tokens};
use coracle_sandbox::{
    Domain, ProxyLease, ProxyListeners, SandboxDir, SandboxKey, SandboxProxy, StartHook, Startup, StartupOptions,
    Transport,
};
use coracle_types::{ContainerId, ProfileName};
use coracle_workspace::SlotRole;

use super::container_spec::Plan;

/// The proxy of a session's container.
pub(super) struct SessionEgress {
    dir: SandboxDir,
    gate: Arc<SandboxProxy>,
    transport: Transport,
    /// Set at the first use.
    lease: Mutex<Option<ProxyLease>>,
    startup: Startup,
}

impl fmt::Debug for SessionEgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionEgress").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl SessionEgress {
    /// Creates the proxy of a role's container; none unless it is configured.
    pub(super) async fn for_role(cx: &Context, role: SlotRole) -> Result<Option<Self>, Failure> {
        let (network, egress) = configured_egress(&cx.config, role);
        let Some(policy) = egress::policy(cx, network, egress)? else { return Ok(None) };
        let (profile, dir) = place(cx, role)?;
        let authority = dir.authority()?;
        let secrets = secrets::rules(cx, &authority)?;
        let shown = format!("{} ({})", cx.call.session, role.as_str());
        let list = if role == SlotRole::Run { RuleList::RunCode } else { RuleList::Workspace };
        let approvals = egress::approvals(cx, &dir, shown, list, policy.clone());
        let grants = Grants { egress: Some(policy.into()), secrets, ..Grants::new(profile.clone(), Tokens::default()) };
        let transport = egress::transport(cx).await?;
        let listeners = ProxyListeners {
            observer: Some(audit::observer(cx, profile.to_string())),
            approvals: Some(Arc::new(approvals)),
        };
        let name = RecordName { session: cx.call.session.as_str(), container: role.as_str(), id: None };
        let record = recorded::settings(cx, egress, name)?;
        let gate = SandboxProxy::new(dir.clone(), grants, listeners).by(transport).recording(record);
        let gate = Arc::new(gate);
        let user = Plan::for_user(role, cx)?.user;
        let also: Option<Arc<dyn StartHook>> = Some(Arc::new(Certificates::with_proxy(cx, user, &authority)));
        let by_policy = cx.runtime().await?.kind().closes_by_policy();
        let options = StartupOptions { also, by_policy, ..StartupOptions::default() };
        let startup = Startup::new(dir.clone(), profile, options).with_proxy(gate.clone());
        Ok(Some(Self { dir, gate, transport, lease: Mutex::default(), startup }))
    }

    /// Returns the directory of the proxy's sockets, if the container mounts it. Created again if another process
    /// ended the session.
    pub(super) fn sockets(&self) -> Result<Option<PathBuf>, Failure> {
        let sockets = self.dir.sockets();
        if !sockets.is_dir() {
            // The container cannot reach a listener in the deleted directory.
            self.gate.close();
            SandboxDir::open(self.dir.root().parent().unwrap_or(Path::new("/")), self.dir.key())?;
        }
        Ok((self.transport == Transport::Unix).then_some(sockets))
    }

    /// Starts listening, unless another process already does.
    pub(super) fn listen(&self) -> Result<(), Failure> {
        let open = self.gate.open()?;
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(open);
        Ok(())
    }

    /// Verifies that the running container has no other outbound access.
    pub(super) async fn prove(&self, link: &Link, id: &ContainerId) -> Result<(), Failure> {
        let ready = self.startup.ensure(link, id.as_str()).await;
        ready.map_err(|it| match it.code {
            coracle_sandbox::Code::EgressNotEnforced => Failure::from(it),
            _ => Failure::new(Code::ReadinessFailed, "Workspace failed readiness checks.").detail("why", it.message),
        })
    }
}

/// Returns the profile and the directory of the proxy of a role's container.
fn place(cx: &Context, role: SlotRole) -> Result<(ProfileName, SandboxDir), Failure> {
    let profile = ProfileName::parse(role.as_str())?;
    let key = SandboxKey::new(&profile, &Domain::Named(cx.call.session.to_string()), "");
    let dir = SandboxDir::open(&cx.state()?.session_proxy(&cx.call.session, role), &key)?;
    Ok((profile, dir))
}

/// Returns the environment of commands that use the proxy, in a container of that role.
pub(super) fn environment(cx: &Context, role: SlotRole) -> Result<Vec<(String, String)>, Failure> {
    let (network, _) = configured_egress(&cx.config, role);
    if network == ProxyNetwork::None {
        return Ok(Vec::new());
    }
    let names = PROXY_ENV.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let secrets = match cx.config.secrets.is_empty() {
        true => Vec::new(),
        false => secrets::placeholders(cx, &*place(cx, role)?.1.authority()?),
    };
    Ok(names.chain(Certificates::env()).chain([Certificates::java_env(JAVA_ASIDE)]).chain(secrets).collect())
}

/// Returns the names that a workspace may reach, as configured.
pub(super) fn names(config: &Config) -> &[String] {
    match configured_egress(config, SlotRole::Workspace) {
        (ProxyNetwork::None, _) => &[],
        (ProxyNetwork::Proxy, egress) => &egress.allow,
    }
}

/// Whether containers of that role have a network.
pub fn is_open(config: &Config, role: SlotRole) -> bool {
    configured_egress(config, role).0 == ProxyNetwork::Proxy
}

/// Returns the configured network of a role.
fn configured_egress(config: &Config, role: SlotRole) -> (ProxyNetwork, &Egress) {
    match role {
        SlotRole::Run => (config.run_code.network, &config.run_code.egress),
        _ => (config.workspace.network, &config.workspace.egress),
    }
}

//! What a container gets at each start, and has to pass, before anybody may use it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Link, Upstream};
use coracle_protocol::EnsureUser;
use coracle_proxy::token::{TokenHash, fresh_token};
use coracle_proxy::{Wall, self_test};
use coracle_types::{Ids, Secret};
use jiff::Timestamp;
use tokio::time::timeout;

use crate::record::StartRecord;
use crate::{AGENT, Code, Failure, Result, WORKER};

/// A container that is not ready by then never is.
const WITHIN: Duration = Duration::from_secs(30);

/// Why a network of its own is mostly not enough.
const GATEWAY_HINT: &str = "on this engine a container without a way out still reaches this host by the gateway of its network: \
     set `proxy.transport` to \"link\" or \"unix\", or leave it out";

/// How a container is made ready.
#[derive(Clone, Debug)]
pub struct StartupOptions {
    /// Who owns the files inside and runs every command.
    pub agent: Ids,
    /// The user of workers; the agent's where no process inside is root.
    pub worker: Ids,
    /// How connections get from its relays to the proxy.
    pub way: Upstream,
    /// The text of `/.coracle/run/gitconfig`.
    pub git_config: String,
    /// What every command finds in its environment.
    pub env: BTreeMap<String, String>,
    /// Their home, which is made if it is missing.
    pub home: Option<String>,
    /// What else is done at each start, before the test.
    pub also: Option<Arc<dyn StartHook>>,
    /// Its network is open by the user's configuration: only its proxy is tested.
    pub open: bool,
    /// Addresses by which containers of this engine see the host, which must not be reached.
    pub gateways: Vec<IpAddr>,
    /// The engine gives each container a network, and closes it by a policy.
    pub by_policy: bool,
}

/// Something that a container needs at each start, which the container's creator implements.
#[async_trait]
pub trait StartHook: fmt::Debug + Send + Sync {
    /// Does it.
    ///
    /// # Errors
    /// The container is not ready then.
    async fn run(&self, link: &Link) -> coracle_types::Result<()>;
}

impl StartupOptions {
    /// Further addresses that must not be reachable; none without network isolation.
    pub(super) fn wall(&self) -> Option<&[IpAddr]> {
        (!self.open).then_some(&*self.gateways)
    }

    /// Whether it has a network although it has no way out but its proxy.
    pub(super) fn has_network(&self) -> bool {
        self.by_policy || matches!(self.way, Upstream::Tcp { .. })
    }
}

impl Default for StartupOptions {
    fn default() -> Self {
        let (way, git_config, env, gateways) = (Upstream::Sockets, String::new(), BTreeMap::new(), Vec::new());
        let (agent, worker) = (AGENT, WORKER);
        Self { agent, worker, way, git_config, env, home: None, also: None, open: false, gateways, by_policy: false }
    }
}

/// Makes a container ready. `note` remembers the token before it is given away: a proxy that hears it knows it.
pub(super) async fn prepare(
    link: &Link,
    id: &str,
    options: &StartupOptions,
    note: impl AsyncFnOnce(StartRecord) -> Result<()>,
) -> Result<()> {
    let (token, at) = (fresh_token(), CurrentStep::default());
    let steps = async {
        let run = at.step("guest", link.run_id()).await?;
        let net = TokenHash::from_token(token.reveal());
        let (container, walled) = (id.to_owned(), options.wall().is_some());
        let proxy_addresses = match options.way {
            Upstream::Tcp { api, egress } => Some([api, egress]),
            Upstream::Sockets | Upstream::Link => None,
        };
        note(StartRecord {
            container,
            run,
            at: Timestamp::now(),
            net,
            llm: Vec::new(),
            proven: false,
            walled,
            proxy_addresses,
        })
        .await?;
        at.step("relays", link.relay(options.way, &token, &options.git_config)).await?;
        if let Some(home) = &options.home {
            let Ids { uid, gid } = options.agent;
            let home = EnsureUser { uid, gid, workdir: home.clone(), bound: Vec::new() };
            at.step("home", link.ensure_user(home)).await?;
        }
        at.begins("environment");
        // Who gives none sets the session by itself.
        if !options.env.is_empty() {
            set_env(link, &options.env).await?;
        }
        if let Some(also) = &options.also {
            at.step("start", also.run(link)).await?;
        }
        at.begins("proxy");
        let wall = options.wall().map(|gateways| Wall { gateways, has_network: options.has_network() });
        self_test(link, wall).await.map_err(|it| match it.code {
            Code::EgressNotEnforced if proxy_addresses.is_some() => it.hint(GATEWAY_HINT),
            Code::EgressNotEnforced => it,
            _ => not_ready("proxy", it.message.trim_end_matches('.')).detail("seen", it.details),
        })
    };
    let late = |_| Err(not_ready(at.now(), format!("{} s passed", WITHIN.as_secs())));
    timeout(WITHIN, steps).await.unwrap_or_else(late)
}

/// What is being done, for when it takes too long.
#[derive(Debug, Default)]
struct CurrentStep(Mutex<&'static str>);

impl CurrentStep {
    fn begins(&self, name: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    fn now(&self) -> &'static str {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn step<T>(&self, name: &'static str, work: impl Future<Output = coracle_types::Result<T>>) -> Result<T> {
        self.begins(name);
        work.await.map_err(|err| not_ready(name, err))
    }
}

/// Says what every command finds in its environment from now on.
pub(in crate::container) async fn set_env(link: &Link, env: &BTreeMap<String, String>) -> Result<()> {
    let env: Vec<_> = env.iter().map(|(name, value)| (name.clone(), Secret::from(value.as_str()))).collect();
    link.set_session(&env).await.map_err(|err| not_ready("environment", err))
}

pub(super) fn not_ready(step: &str, why: impl std::fmt::Display) -> Failure {
    Failure::new(Code::SandboxNotReady, format!("The sandbox did not become ready: {why}.")).detail("step", step)
}

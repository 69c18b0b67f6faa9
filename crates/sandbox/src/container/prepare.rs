//! What a container gets at each start, and has to pass, before anybody may use it (sandbox.md 1.3, 5.3).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use coracle_runtime::Secret;
use coracle_runtime::link::Link;
use coracle_runtime::link::wire::Settle;
use jiff::Timestamp;
use tokio::time::timeout;

use super::record::Prepared;
use crate::proxy::self_test;
use crate::{AGENT, Code, Failure, Held, Result, TokenHash, fresh_token};

/// A container that is not ready by then never is.
const WITHIN: Duration = Duration::from_secs(30);

/// How a container is made ready.
#[derive(Clone, Debug, Default)]
pub struct Preparing {
    /// The text of `/.coracle/run/gitconfig`.
    pub git_config: String,
    /// What every command finds in its environment.
    pub env: BTreeMap<String, String>,
    /// The agent's home, which is made if it is missing.
    pub home: String,
    /// Addresses by which containers of this engine see the host, which must not be reached.
    pub gateways: Vec<IpAddr>,
}

/// Makes a container ready. `note` remembers the token before it is given away: a proxy that hears it knows it.
pub(super) async fn prepare(
    held: &Held,
    preparing: &Preparing,
    note: impl AsyncFnOnce(Prepared) -> Result<()>,
) -> Result<()> {
    let token = fresh_token();
    let steps = async {
        let run = held.link.run_id().await.map_err(|err| not_ready("guest", err))?;
        let net = TokenHash::of(token.reveal());
        note(Prepared { container: held.id.clone(), run, at: Timestamp::now(), net, llm: Vec::new(), proven: false })
            .await?;
        held.link.relay(&token, &preparing.git_config).await.map_err(|err| not_ready("relays", err))?;
        let home = Settle { uid: AGENT.uid, gid: AGENT.gid, workdir: preparing.home.clone(), bound: Vec::new() };
        held.link.settle(home).await.map_err(|err| not_ready("home", err))?;
        give_env(&held.link, &preparing.env).await?;
        self_test(&held.link, &preparing.gateways).await.map_err(|it| match it.code {
            Code::EgressNotEnforced => it,
            _ => not_ready("proxy", it.message.trim_end_matches('.')).detail("seen", it.details),
        })
    };
    timeout(WITHIN, steps).await.unwrap_or_else(|_| Err(not_ready("time", format!("{} s passed", WITHIN.as_secs()))))
}

/// Says what every command finds in its environment from now on.
pub(super) async fn give_env(link: &Link, env: &BTreeMap<String, String>) -> Result<()> {
    let env: Vec<_> = env.iter().map(|(name, value)| (name.clone(), Secret::from(value.as_str()))).collect();
    link.set_session(&env).await.map_err(|err| not_ready("environment", err))
}

pub(super) fn not_ready(step: &str, why: impl std::fmt::Display) -> Failure {
    Failure::new(Code::SandboxNotReady, format!("The sandbox did not become ready: {why}.")).detail("step", step)
}

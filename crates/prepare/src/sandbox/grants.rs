//! The grants of a sandbox, from the configuration: models, repositories, network destinations.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_context::config::{self, SandboxNetwork, SandboxProfile};
use coracle_context::configured_key::ConfiguredKey;
use coracle_context::context::Context;
use coracle_context::egress;
use coracle_context::failure::{Code, Failure};
use coracle_context::host_identity::trusted_path;
use coracle_context::secrets;
use coracle_context::user_environment::user_environment;
use coracle_host::git::IsolatedGit;
use coracle_host::git_url::{GitRules, GitUrl};
use coracle_proxy::policy::{
    Budget, GitCredentials, GitLogin, GitRules as Rules, GitSettings, Grants, ProviderConfig, Tokens,
};
use coracle_proxy::{Authority, policy};
use coracle_types::ProfileName;

use crate::coding_agents;

/// Builds the grants of a profile's sandboxes, without their tokens. `repository` is the sandbox's own, the default
/// repository of git inside.
pub(super) fn grants(
    cx: &Context,
    name: &ProfileName,
    profile: &SandboxProfile,
    repository: Option<&str>,
    authority: Option<&Authority>,
) -> Result<Grants, Failure> {
    let (own, proxy) = (&cx.config.sandbox, &cx.config.proxy);
    if own.network == SandboxNetwork::Bridge {
        egress::open(cx, "not even to all that this host reaches")?;
    }
    let egress = egress::policy(cx, own.network.proxied(), &own.egress)?;
    Ok(Grants {
        provider: profile.provider.as_ref().map(|it| provider(cx, it)).transpose()?,
        // A coding agent is a program like any other in the sandbox, so it has no token of its own.
        llm_for_agent: proxy.llm_for_agent || coding_agents::find(name.as_str()).is_some(),
        git: git(cx, repository)?,
        egress: egress.map(Arc::new),
        secrets: authority.map(|it| secrets::rules(cx, it)).transpose()?.unwrap_or_default(),
        budget: Budget { tokens: profile.budget_tokens, cost_usd: None },
        max_body: u64::from(proxy.max_body_mb) << 20,
        ..Grants::new(name.clone(), Tokens::default())
    })
}

/// Describes the sandbox's network for a model.
pub(super) fn network(config: &config::Sandbox) -> String {
    match config.network {
        SandboxNetwork::None => "none".to_owned(),
        SandboxNetwork::Bridge => "open (egress: open)".to_owned(),
        SandboxNetwork::Proxy => format!("only {} through the configured proxy", config.egress.allow.join(", ")),
    }
}

fn provider(cx: &Context, own: &config::Provider) -> Result<ProviderConfig, Failure> {
    let kind = match own.kind {
        config::ProviderKind::Openai => policy::ProviderKind::OpenAi,
        config::ProviderKind::Anthropic => policy::ProviderKind::Anthropic,
        config::ProviderKind::Google => policy::ProviderKind::Google,
    };
    let key = Arc::new(ConfiguredKey::of_provider(cx, own)?);
    Ok(ProviderConfig::new(kind, &own.base_url, key, &own.models)?.with_headers(&own.headers)?)
}

fn git(cx: &Context, repository: Option<&str>) -> Result<Option<Rules>, Failure> {
    let own = &cx.config.sandbox.git;
    let mode = match own.mode {
        config::GitMode::Off => return Ok(None),
        config::GitMode::Proxy => policy::GitMode::Proxy,
        config::GitMode::Credential => policy::GitMode::Credential,
    };
    let (hosts, repos, push) = (own.hosts.clone(), own.repos.clone(), own.push.clone());
    let settings = GitSettings { mode, hosts, repos, push, allow_private: cx.config.images.git_allow_private };
    let settings = match repository {
        Some(url) => settings.or_own(url),
        None => settings,
    };
    let helper = Helper { git: own_git(cx)?, allow_private: settings.allow_private };
    Ok(Some(Rules::new(&settings, Arc::new(helper))?))
}

/// The user's own credential helper, called for each fetch or push from a sandbox. The credentials stay on the host.
#[derive(Debug)]
struct Helper {
    git: IsolatedGit,
    allow_private: bool,
}

#[async_trait]
impl GitCredentials for Helper {
    async fn login(&self, scheme: &str, host: &str, path: &str) -> Option<GitLogin> {
        let rules = GitRules { allow_private: self.allow_private, ..GitRules::default() };
        let url = GitUrl::parse(&format!("{scheme}://{host}/{path}"), rules).ok()?;
        let login = self.git.login(&url).await.ok()??;
        Some(GitLogin { username: login.username, password: login.password })
    }
}

/// Configures git to run the user's credential helper.
fn own_git(cx: &Context) -> Result<IsolatedGit, Failure> {
    let missing = |_| Failure::new(Code::GitMissing, "there is no git on this host").hint("install git");
    IsolatedGit::of_this_host(trusted_path(cx), cx.state()?.scratch(), user_environment(cx)).map_err(missing)
}

//! The proxy of a container with `network: "proxy"`, reached over the link to its guest: in a process of its own, or in
//! the server that uses the container.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coracle_client::{Link, Transport as LinkTransport};
use coracle_lifecycle::{ProxyProcess, Record, open_link};
use coracle_provision::StepReport;
use coracle_proxy::environment::PROXY_ENV;
use coracle_proxy::policy::{EgressPolicy, Grants, Tokens};
use coracle_proxy::replay::ReplayReport;
use coracle_proxy::{Approvals, Authority, Observer, ProxyEvent, SELF_TEST};
use coracle_sandbox::{
    Domain, ProxyListeners, SandboxDir, SandboxKey, SandboxProxy, StartHook, Startup, StartupOptions, Transport,
};
use coracle_types::{Error, ProcessId, ProfileName};
use tokio::time::{sleep, timeout};

use crate::approvals::{ProxyApprovals, RuleList};
use crate::config::ProxyNetwork;
use crate::context::Context;
use crate::document::joined;
use crate::egress::Certificates;
use crate::failure::{Code, Failure};
use crate::proxies::{OpenProxy, Refusals};
use crate::recorded::{self, RecordName};
use crate::strict::USER;
use crate::warning::Warning;
use crate::{audit, egress, proxy_process, secrets};

/// The names of GitHub's token, which `forward_gh` sets.
const GITHUB: [&str; 2] = ["GH_TOKEN", "GITHUB_TOKEN"];

/// How long the process of a proxy waits for the one that it replaces.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Pauses before a lost link is opened again: the engine may report a container that stops as running for a moment.
const RECONNECT_PAUSES: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];

/// How long the guest may take to answer on the new link.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Ensures that the proxy of a running container listens and that the container has no other way out. Does nothing for
/// a container without one.
///
/// # Errors
/// `egress_not_enforced`; `readiness_failed` with the step that failed; `policy_denied` if the configuration no longer
/// allows it.
pub async fn ensure(cx: &Context, record: &Record, link: &Link) -> Result<(), Failure> {
    let Some(id) = record.id.as_ref().filter(|_| record.proxied) else { return Ok(()) };
    Box::pin(proxy_process::ensure(cx, record, link, &*authority(cx, record)?)).await?;
    // Listens only if no other process does, and while none does.
    let proxy = cx.proxies().get_or_open(&record.record_id, || open(cx, record))?;
    let ready = Box::pin(proxy.startup.ensure(link, id.as_str())).await;
    ready.map_err(|it| match it.code {
        coracle_sandbox::Code::EgressNotEnforced => Failure::from(it),
        _ => Failure::new(Code::ReadinessFailed, "The proxy of the container is not ready.").detail("why", it.message),
    })
}

/// Runs the proxy of a container until the container stops, in a process that does nothing else.
///
/// # Errors
/// Those of [`ensure`]; `not_found` if there is no such container.
pub async fn serve(cx: &Context, name: &str) -> Result<(), Failure> {
    let store = cx.store()?;
    let recorded = store.records()?.into_iter().find(|it| it.name.as_str() == name);
    let record = recorded.ok_or_else(|| Failure::from(Error::NoSuchContainer(name.to_owned())))?;
    let (record, authority) = (&*record, authority(cx, &record)?);
    let Some(id) = record.id.as_ref().filter(|_| record.proxied) else { return Ok(()) };
    let Some(_alone) = store.claim_proxy_process(record, CLAIM_TIMEOUT).await? else { return Ok(()) };
    let link = open_link(cx.engines(), &store, cx.links(), record).await?;
    let proxy = cx.proxies().get_or_open(&record.record_id, || open(cx, record))?;
    Box::pin(proxy.startup.ensure(&link, id.as_str())).await?;
    let run = link.run_id().await?;
    let by_exec = link.transport() == Some(LinkTransport::Stream);
    let (process, settings) = (ProcessId::current(), proxy_process::settings(cx, &authority)?);
    store.save_proxy_process(record, &ProxyProcess { process, run: run.clone(), settings, by_exec })?;
    cx.call.cancel.run_until_cancelled(until_stopped(&link, &run)).await;
    proxy.lease.end_record().await;
    Ok(())
}

/// Waits until this run of the guest has ended. A link that breaks is opened again, as long as the guest is the same.
async fn until_stopped(link: &Link, run: &str) {
    let guest = link.peer();
    loop {
        link.closed().await;
        for pause in RECONNECT_PAUSES {
            sleep(pause).await;
            if guest.as_ref().is_some_and(|it| !it.alive()) {
                return;
            }
            match timeout(RECONNECT_TIMEOUT, link.run_id()).await {
                Ok(Ok(now)) if now == run => break,
                Ok(Ok(_) | Err(Error::NotRunning { .. } | Error::NoSuchContainer(_))) => return,
                Ok(Err(_)) | Err(_) => {}
            }
        }
        if link.transport().is_none() {
            return;
        }
    }
}

/// Returns a warning of the requests that the proxy of a container has refused since the last call.
pub async fn refused(cx: &Context, record: &Record) -> Option<Warning> {
    let refused = if record.proxied { cx.proxies().refused(&record.record_id).await } else { Vec::new() };
    let message =
        format!("the proxy refused {}; `coracle approvals` shows the user what a rule can allow", joined(&refused));
    (!refused.is_empty()).then(|| Warning::new("request_refused", message))
}

/// A refusal in a warning.
fn shown(event: &ProxyEvent) -> String {
    let target = event.target.as_deref().unwrap_or("a request");
    let rule = event.rule.as_ref().map(|rule| format!(", which the rule `{rule}` would allow")).unwrap_or_default();
    format!("`{target}` ({}{rule})", event.code)
}

/// Reports what the configuration allows, for a container whose proxy was just tested.
#[must_use]
pub fn report(cx: &Context, record: &Record) -> StepReport {
    if let Some(path) = &record.replay {
        let detail = format!("requests are answered from the record `{path}`");
        return StepReport::success("proxy", detail, "the guest reached the proxy, and nothing outside");
    }
    let counted = |n: usize, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
    let rules = counted(cx.config.security.egress.allow.len(), "rule");
    let detail = format!("{rules} and {} through the proxy", counted(cx.config.secrets.len(), "secret"));
    StepReport::success("proxy", detail, "the guest reached the proxy, and nothing else outside")
}

/// The variables of commands in such a container: the proxy's, and placeholders of secrets.
///
/// # Errors
/// If the authority cannot be read or made.
pub fn variables(cx: &Context, record: &Record) -> Result<BTreeMap<String, String>, Failure> {
    let proxy = PROXY_ENV.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let secrets = secrets::placeholders(cx, &*authority(cx, record)?);
    Ok(proxy.chain(secrets).collect())
}

/// Whether GitHub's token stays outside: inside is its placeholder.
#[must_use]
pub fn has_github(cx: &Context, record: &Record) -> bool {
    record.proxied && GITHUB.iter().any(|it| cx.config.secrets.contains_key(*it))
}

/// Returns what a container that replays a record has requested.
///
/// # Errors
/// `invalid_input` for another container; `newer_version`, and errors of the file system.
pub fn replay_report(cx: &Context, record: &Record) -> Result<ReplayReport, Failure> {
    let path = record.replay.as_ref().ok_or_else(|| {
        Failure::invalid("container", format!("`{}` does not replay a record", record.name))
            .hint("create one with `replay`, which names a record")
    })?;
    Ok(ReplayReport::read(&recorded::dir_of(cx, path)?, &place(cx, record)?.1.replay_log())?)
}

/// The certificate with which the container's proxy ends TLS, as PEM.
///
/// # Errors
/// If the authority cannot be read or made.
pub fn certificate(cx: &Context, record: &Record) -> Result<String, Failure> {
    Ok(authority(cx, record)?.certificate().to_owned())
}

/// Requests a rule from the user, with the reason of an agent. Returns whether it is allowed.
///
/// # Errors
/// `invalid_input` for an invalid rule; if the request cannot be recorded.
pub async fn request(cx: &Context, record: &Record, rule: &str, reason: &str) -> Result<bool, Failure> {
    // The proxy may be in another process: they share the file.
    approvals(cx, record, EgressPolicy::default())?.request(rule, reason).await
}

/// The user's decisions about the requests of the container, beside a policy.
fn approvals(cx: &Context, record: &Record, policy: EgressPolicy) -> Result<ProxyApprovals, Failure> {
    let (_, dir) = place(cx, record)?;
    Ok(egress::approvals(cx, &dir, record.name.to_string(), RuleList::Security, policy))
}

fn authority(cx: &Context, record: &Record) -> Result<Arc<Authority>, Failure> {
    Ok(place(cx, record)?.1.authority()?)
}

fn place(cx: &Context, record: &Record) -> Result<(ProfileName, SandboxDir), Failure> {
    let profile = ProfileName::parse("create")?;
    let key = SandboxKey::new(&profile, &Domain::Named(record.record_id.to_string()), "");
    let dir = SandboxDir::open(&cx.state()?.container_proxy(&record.record_id), &key)?;
    Ok((profile, dir))
}

fn open(cx: &Context, record: &Record) -> Result<OpenProxy, Failure> {
    // The proxy outlives the call that opens it.
    let cx = &cx.outliving_the_call();
    let (profile, dir) = place(cx, record)?;
    let own = &cx.config.security.egress;
    let (egress, recording, replay) = match &record.replay {
        // Nothing is sent outside, so that no rule applies.
        Some(path) => (Some(EgressPolicy::default()), None, Some(recorded::dir_of(cx, path)?)),
        None => {
            let (session, container, id) = (&*record.session, record.name.as_str(), record.record_id.as_str());
            let name = RecordName { session, container, id: Some(id) };
            (egress::policy(cx, ProxyNetwork::Proxy, own)?, recorded::settings(cx, own, name)?, None)
        }
    };
    let authority = dir.authority()?;
    let secrets = secrets::rules(cx, &authority)?;
    let approvals = egress.clone().map(|it| approvals(cx, record, it)).transpose()?;
    let approvals = approvals.map(|it| Arc::new(it) as Arc<dyn Approvals>);
    let grants = Grants { egress: egress.map(Arc::new), secrets, ..Grants::new(profile.clone(), Tokens::default()) };
    let (refusals, audited) = (Refusals::new(dir.root()), audit::refusals(cx, record.name.to_string()));
    let reported = refusals.clone();
    let observer: Observer = Arc::new(move |event| {
        let recorded_by = audited(&event);
        // The test after each start is refused, as it should be.
        if event.target.as_deref() != Some(SELF_TEST) {
            reported.add(&shown(&event), recorded_by);
        }
    });
    let listeners = ProxyListeners { observer: Some(observer), approvals };
    let gate = SandboxProxy::new(dir.clone(), grants, listeners).by(Transport::Link).recording(recording);
    let gate = Arc::new(match replay {
        Some(recorded) => gate.replaying(recorded),
        None => gate,
    });
    let also: Option<Arc<dyn StartHook>> = match cx.config.is_strict() {
        true => Some(Arc::new(Certificates::with_proxy(cx, USER, &authority))),
        false => None,
    };
    let by_policy = record.engine.closes_by_policy();
    let options = StartupOptions { also, by_policy, ..StartupOptions::default() };
    let startup = Startup::new(dir.clone(), profile, options).with_proxy(gate.clone());
    Ok(OpenProxy { startup, dir: dir.root().to_owned(), lease: gate.open()?, refusals })
}

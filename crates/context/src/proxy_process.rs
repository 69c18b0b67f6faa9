//! The process that runs the proxy of a container of `create`. A command of the command line starts it, since the
//! container needs its way out for longer than the command. A server runs the proxies of its containers itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use coracle_client::Link;
use coracle_host::process::{Invocation, spawn_daemon};
use coracle_host::recorded_process;
use coracle_lifecycle::{ProxyProcess, Record};
use coracle_proxy::Authority;
use coracle_types::{EngineKind, ProcessId, Secret};
use tokio::time::{Instant, sleep};

use crate::config::Config;
use crate::configured_key::ConfiguredKey;
use crate::context::Context;
use crate::failure::Failure;
use crate::user_environment::user_environment;

/// The hidden command that such a process executes.
pub const COMMAND: &str = "container-proxy";

/// How long a new process may take until it listens: it tests the container first.
const READY_TIMEOUT: Duration = Duration::from_secs(15);

const POLL: Duration = Duration::from_millis(2);

/// How long an outdated process may take to end after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// Replaces the process of a container's proxy if it has other settings or belongs to an earlier start of the
/// container. A process that makes one call also starts one if there is none.
///
/// If none can be started, the caller runs the proxy itself until it ends.
///
/// # Errors
/// If the state directory cannot be used, or the guest does not answer.
pub(crate) async fn ensure(cx: &Context, record: &Record, link: &Link, authority: &Authority) -> Result<(), Failure> {
    let (store, program) = (cx.store()?, cx.proxies().program());
    // A container of the fake ends with this process.
    if record.engine == EngineKind::Fake || (program.is_none() && store.proxy_process(record).is_none()) {
        return Ok(());
    }
    let wanted = Wanted { settings: settings(cx, authority)?, run: link.run_id().await? };
    if store.proxy_process(record).is_some_and(|it| wanted.is_met_by(&it)) {
        return Ok(());
    }
    let Some(_alone) = store.lock_proxy_start(record, READY_TIMEOUT + 2 * GRACE).await? else { return Ok(()) };
    match store.proxy_process(record) {
        Some(current) if wanted.is_met_by(&current) => return Ok(()),
        Some(outdated) => {
            recorded_process::end(&outdated.process, GRACE).await;
        }
        None => {}
    }
    let Some(program) = program else { return Ok(()) };
    let pid = spawn(cx, record, program)?;
    let (process, give_up) = (ProcessId::from_pid(pid), Instant::now() + READY_TIMEOUT);
    let is_alive = || process.as_ref().is_none_or(ProcessId::alive);
    while store.proxy_process(record).is_none_or(|it| it.process.pid != pid) {
        if Instant::now() > give_up || !is_alive() {
            tracing::warn!(container = %record.name, "its proxy ends with this command: no process of its own starts");
            break;
        }
        sleep(POLL).await;
    }
    Ok(())
}

/// What a process has to be for a call.
struct Wanted {
    settings: BTreeMap<String, String>,
    run: String,
}

impl Wanted {
    /// A process may know more: values of variables that this call does not have.
    fn is_met_by(&self, process: &ProxyProcess) -> bool {
        process.run == self.run && self.settings.iter().all(|(key, value)| process.settings.get(key) == Some(value))
    }
}

/// Returns digests of all that the proxy of a container depends on in this process.
///
/// # Errors
/// For a secret whose command is invalid.
pub(crate) fn settings(cx: &Context, authority: &Authority) -> Result<BTreeMap<String, String>, Failure> {
    let (security, secrets) = (&cx.config.security, &cx.config.secrets);
    let rules = Secret::from(format!("{:?} {:?} {secrets:?}", security.network, security.egress));
    let mut settings = BTreeMap::from([
        ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("rules".to_owned(), authority.digest(&rules)),
    ]);
    for (name, source) in secrets {
        if let Some(value) = ConfiguredKey::of_secret(cx, name, source)?.variable() {
            settings.insert(format!("secret {name}"), authority.digest(value));
        }
    }
    Ok(settings)
}

/// Starts the process, with the configuration and the variables of this one.
fn spawn(cx: &Context, record: &Record, program: &Path) -> Result<u32, Failure> {
    let mut words = vec!["--state-dir".to_owned(), cx.state()?.root().display().to_string()];
    if Config::location(None, &cx.host) != cx.settings.file {
        words.extend(["--config".to_owned(), cx.settings.file.display().to_string()]);
    }
    words.extend(["--session".to_owned(), cx.call.session.to_string()]);
    words.extend([COMMAND.to_owned(), record.name.to_string()]);
    // A descriptor that the caller left open, of a lock say, must not stay open in it.
    #[cfg(target_os = "linux")]
    coracle_engine::close_inherited_on_exec();
    Ok(spawn_daemon(&Invocation { env: user_environment(cx), ..Invocation::new(program, words) })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_other_rules_values_or_of_an_earlier_start_is_replaced() {
        let settings = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let process = ProxyProcess {
            process: ProcessId::current(),
            run: "r".into(),
            settings: settings(&[("rules", "1"), ("secret A", "a")]),
            by_exec: false,
        };
        for (run, wanted, is_met) in [
            ("r", settings(&[("rules", "1"), ("secret A", "a")]), true),
            ("r", settings(&[("rules", "1")]), true),
            ("r", settings(&[("rules", "1"), ("secret A", "b")]), false),
            ("r", settings(&[("rules", "1"), ("secret B", "b")]), false),
            ("r", settings(&[("rules", "2"), ("secret A", "a")]), false),
            ("s", settings(&[("rules", "1"), ("secret A", "a")]), false),
        ] {
            let wanted = Wanted { settings: wanted, run: run.into() };
            assert_eq!(wanted.is_met_by(&process), is_met, "{run} {:?}", wanted.settings);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn settings_follow_rules_and_values_and_show_neither() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::generate("box").unwrap();
        let of = |text: &str, value: &str| {
            let mut cx = Context::for_tests(dir.path());
            cx.config = std::sync::Arc::new(Config::read(text, false).unwrap());
            let mut host = (*cx.host).clone();
            host.env.insert("MINE".into(), Secret::from(value));
            cx.host = host.into();
            settings(&cx, &authority).unwrap()
        };
        let rules = |host: &str| {
            format!(
                "[security]\nnetwork = \"proxy\"\n[security.egress]\nallow = [\"{host}\"]\n[secrets.MINE]\nhosts = [\"a.example.com\"]\n"
            )
        };
        let first = of(&rules("a.example.com"), "canary");
        assert_eq!(first, of(&rules("a.example.com"), "canary"));
        assert_ne!(first, of(&rules("b.example.com"), "canary"));
        assert_ne!(first, of(&rules("a.example.com"), "another"));
        assert!(!format!("{first:?}").contains("canary"), "{first:?}");
    }
}

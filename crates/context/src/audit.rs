//! The audit trail: a line before each act and a line after it, each with the hash of the line before.
//!
//! **Invariant:** no act without its intent line.
//! **Invariant:** a line contains values only of fields that are listed as harmless; commands are recorded by program
//! and length.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coracle_audit::{AuditLog, arguments};
use coracle_proxy::record::{RecordObserver, StoredExchange};
use coracle_proxy::{Observer, ProxyEvent, SELF_TEST};
use coracle_workspace::Effect;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

use crate::context::{Context, Frontend};
use crate::failure::{Code, Failure, is_full};
use crate::humanize::millis;
use crate::state::StateDir;

/// An announced act.
#[derive(Debug)]
pub struct Intent {
    log: AuditLog,
    fields: Map<String, Value>,
    begun: Instant,
}

/// Announces an act. If the act cannot be undone, the line is synced to disk before this returns.
///
/// # Errors
/// `config_invalid` if the trail cannot be written: the act must not be executed then.
pub async fn intent(cx: &Context, op: &str, effect: Effect, args: &Map<String, Value>) -> Result<Intent, Failure> {
    let container = args.get("container").or_else(|| args.get("name")).map_or(Value::Null, arguments::name);
    let fields = fields(cx, op, &container)?;
    let log = AuditLog::new(cx.state()?.audit());
    let line = with(&fields, json!({ "phase": "intent", "args": arguments::args(args) }));
    log.append(line, effect == Effect::Irreversible).await.map_err(|err| {
        if is_full(&err) {
            return Failure::state_dir_full(&cx.state().map(StateDir::audit).unwrap_or_default(), &err);
        }
        Failure::config("state_dir", None, format!("the audit trail cannot be written: {err}"))
            .hint("free space for the state directory; acts that cannot be recorded are refused")
    })?;
    Ok(Intent { log, fields, begun: Instant::now() })
}

/// The fields of every line of an act.
fn fields(cx: &Context, op: &str, container: &Value) -> Result<Map<String, Value>, Failure> {
    let frontend = match cx.call.frontend {
        Frontend::Call => "call",
        Frontend::Cli => "cli",
        Frontend::Mcp => "mcp",
        Frontend::Serve => "serve",
        Frontend::Ui => "ui",
    };
    let fields = json!({
        "session": cx.call.session,
        "mouth": frontend,
        "op_id": coracle_types::random_hex::<8>(),
        "op": op,
        "container": container,
        "policy": if cx.config.is_strict() { "strict" } else { "standard" },
    });
    let Value::Object(mut fields) = fields else { return Err(Failure::internal("an audit line is no object")) };
    if cx.has_consent() {
        fields.insert("allowed_by".into(), "person".into());
    }
    Ok(fields)
}

impl Intent {
    /// Records how a program of the user ended: its exit code, if it has one.
    pub async fn finish_program(self, exit_code: Result<Option<u8>, &Failure>) {
        let result = exit_code.map(|code| Map::from_iter([("exit_code".to_owned(), json!(code))]));
        self.finish(result.as_ref().map_err(|failure| *failure)).await;
    }

    /// Records the result of the act. The act is done, so a line that cannot be written is only logged.
    pub async fn finish(self, result: Result<&Map<String, Value>, &Failure>) {
        let (code, rule) = match result {
            Ok(_) => (Value::Null, Value::Null),
            Err(failure) => (failure.code.word().into(), failure.details.get("rule").cloned().unwrap_or_default()),
        };
        let decision = if code == "policy_denied" || code == "other_session" { "denied" } else { "allowed" };
        let exit = result.ok().and_then(|it| it.get("exit_code")).cloned();
        let ms = millis(self.begun.elapsed());
        // The intent does not contain a generated name.
        let made = result.ok().and_then(|it| it.get("container")).filter(|it| it.is_string());
        let mut fields = self.fields;
        if fields.get("container").is_none_or(Value::is_null) {
            fields.insert("container".into(), made.map(arguments::name).into());
        }
        let more =
            json!({ "phase": "result", "code": code, "rule": rule, "decision": decision, "exit": exit, "ms": ms });
        if let Err(err) = self.log.append(with(&fields, more), false).await {
            tracing::error!("the audit trail cannot be written: {err}");
        }
    }
}

/// Records a removal without a call: at the end of a session, after the lifetime of a container, or of what a killed
/// process left.
pub async fn automatic_removal(cx: &Context, op: &str, container: &str) {
    let args = Map::from_iter([("container".to_owned(), container.into())]);
    match intent(cx, op, Effect::Irreversible, &args).await {
        Ok(intent) => intent.finish(Ok(&Map::new())).await,
        Err(failure) => tracing::error!(container, "its removal is not in the audit trail: {}", failure.message),
    }
}

/// The time in which a repeated refusal is not recorded again, and the number of refusals in it that are recorded: a
/// program can try any number of addresses.
const REPEATED: (Duration, usize) = (Duration::from_secs(60), 100);

/// Returns a function that records what the proxy of a container refuses: `request`, with the address and the code. Its
/// result is the task that writes, if the refusal is recorded.
pub fn refusals(
    cx: &Context,
    container: String,
) -> impl Fn(&ProxyEvent) -> Option<JoinHandle<()>> + Send + Sync + use<> {
    let (cx, recent) = (cx.outliving_the_call(), Mutex::new(HashMap::new()));
    move |event| {
        // The test after each start is refused, as it should be.
        let is_test = event.target.as_deref() == Some(SELF_TEST);
        if is_test || !is_first(&recent, (event.code, event.target.clone())) {
            return None;
        }
        let (cx, container, event) = (cx.clone(), container.clone(), event.clone());
        Some(tokio::spawn(async move {
            let args = Map::from_iter([
                ("container".to_owned(), container.into()),
                ("address".to_owned(), event.target.into()),
            ]);
            let refusal = Failure::new(Code::PolicyDenied, "the proxy refused it").detail("rule", event.code);
            match intent(&cx, "request", Effect::Mutating, &args).await {
                Ok(intent) => intent.finish(Err(&refusal)).await,
                Err(failure) => tracing::error!("a refused request is not in the audit trail: {}", failure.message),
            }
        }))
    }
}

/// Maximum number of lines of recorded requests, for one run of a proxy.
const MAX_EXCHANGES: u64 = 10_000;

/// Returns a function that writes a line for each recorded request of a container: method, address without the query,
/// status, and the SHA-256 of its line in the record.
#[must_use]
pub fn exchanges(cx: &Context, container: String) -> RecordObserver {
    let (cx, written) = (cx.outliving_the_call(), Arc::<AtomicU64>::default());
    Arc::new(move |exchange| {
        let (cx, container, written) = (cx.clone(), container.clone(), written.clone());
        Box::pin(async move {
            // What was refused has a line already. A flood must not push other acts out of the trail.
            if exchange.refused.is_some() || written.fetch_add(1, Ordering::Relaxed) >= MAX_EXCHANGES {
                return;
            }
            if let Err(why) = exchange_line(&cx, container, exchange).await {
                tracing::error!("a recorded request is not in the audit trail: {why}");
            }
        })
    })
}

async fn exchange_line(cx: &Context, container: String, exchange: StoredExchange) -> Result<(), String> {
    let StoredExchange { sequence, method, url, status, ms, sha256, .. } = exchange;
    let fields = fields(cx, "request", &container.into()).map_err(|it| it.message.clone())?;
    let args = json!({
        "method": method,
        "address": arguments::name(&url.into()),
        "status": status,
        "sequence": sequence,
        "sha256": sha256,
    });
    let line = json!({ "phase": "whole", "args": args, "code": null, "rule": null, "decision": "allowed", "ms": ms });
    let log = AuditLog::new(cx.state().map_err(|it| it.message.clone())?.audit());
    log.append(with(&fields, line), false).await.map_err(|it| it.to_string())
}

/// Returns [`refusals`] as the observer of a proxy.
#[must_use]
pub fn observer(cx: &Context, container: String) -> Observer {
    let record = refusals(cx, container);
    Arc::new(move |event| drop(record(&event)))
}

type RecentRefusals = Mutex<HashMap<(&'static str, Option<String>), Instant>>;

/// Whether a refusal is to be recorded.
fn is_first(recent: &RecentRefusals, refusal: (&'static str, Option<String>)) -> bool {
    let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
    recent.retain(|_, at| at.elapsed() < REPEATED.0);
    let is_new = recent.len() < REPEATED.1 && !recent.contains_key(&refusal);
    if is_new {
        recent.insert(refusal, Instant::now());
    }
    is_new
}

fn with(fields: &Map<String, Value>, more: Value) -> Map<String, Value> {
    let mut all = fields.clone();
    if let Value::Object(more) = more {
        all.extend(more);
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};
    use sha2::{Digest, Sha256};

    use super::{Effect, ProxyEvent, intent};
    use crate::context::Context;
    use crate::failure::{Code, Failure};

    fn lines(cx: &Context) -> Vec<String> {
        let mut files: Vec<_> = std::fs::read_dir(cx.state().unwrap().audit()).unwrap().map(|it| it.unwrap()).collect();
        files.retain(|it| it.file_name().to_string_lossy().ends_with(".jsonl"));
        let Some(file) = files.first() else { return Vec::new() };
        let text = std::fs::read_to_string(file.path()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    async fn act(cx: &Context, args: Value, result: &Result<Map<String, Value>, Failure>) {
        let Value::Object(args) = args else { panic!("no object") };
        intent(cx, "exec", Effect::Mutating, &args).await.unwrap().finish(result.as_ref()).await;
    }

    #[tokio::test]
    async fn acts_leave_two_lines_in_a_chain() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        let args = json!({ "container": "web", "command": "curl -H secret", "env": { "TOKEN": "canary" } });
        act(&cx, args, &Ok(Map::new())).await;
        let denied = Failure::new(Code::PolicyDenied, "no").detail("rule", "root.exec");
        act(&cx, json!({ "container": "web" }), &Err(denied)).await;
        let lines = lines(&cx);
        let read: Vec<Value> = lines.iter().map(|it| serde_json::from_str(it).unwrap()).collect();
        let seq: Vec<u64> = read.iter().map(|it| it["seq"].as_u64().unwrap()).collect();
        assert_eq!(seq, [0, 1, 2, 3]);
        for (before, line) in lines.iter().zip(&read[1..]) {
            assert_eq!(line["prev"], hex::encode(Sha256::digest(before.as_bytes())));
        }
        assert_eq!((&read[0]["phase"], &read[1]["phase"]), (&json!("intent"), &json!("result")));
        assert_eq!(read[0]["args"]["command"]["first"], "curl");
        assert_eq!((&read[3]["decision"], &read[3]["rule"]), (&json!("denied"), &json!("root.exec")));
        assert!(!lines.concat().contains("canary") && !lines.concat().contains("secret"));
    }

    #[tokio::test]
    async fn a_refusal_is_recorded_once_and_a_flood_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        let observe = super::refusals(&cx, "web".to_owned());
        let refused = |code, target: String| {
            let (container, target) = ("key".to_owned(), Some(target));
            drop(observe(&ProxyEvent { code, container, target, rule: None, policy_generation: 0 }));
        };
        for _ in 0..50 {
            refused("secret_not_for_host", "evil.example.com:443".to_owned());
        }
        (0..300).for_each(|it| refused("host_not_allowed", format!("{it}.example.com:443")));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while lines(&cx).len() < 200 && std::time::Instant::now() < until {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let lines = lines(&cx);
        assert_eq!(lines.len(), 200, "100 refusals, each with its result");
        let of = |code: &str| lines.iter().filter(|it| it.contains(&format!("\"rule\":\"{code}\""))).count();
        assert_eq!((of("secret_not_for_host"), of("host_not_allowed")), (1, 99));
        assert!(lines.iter().any(|it| it.contains("\"address\":\"evil.example.com:443\"")), "{lines:?}");
    }

    #[tokio::test]
    async fn without_a_trail_no_act_is_executed() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        std::fs::remove_dir_all(cx.state().unwrap().audit()).unwrap();
        assert_eq!(intent(&cx, "exec", Effect::Mutating, &Map::new()).await.unwrap_err().code, Code::ConfigInvalid);
    }
}

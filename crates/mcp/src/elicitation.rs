//! Asks the user about refused requests of containers, if the client can show a form.
//!
//! **Invariant:** without an answer, or with an unclear one, a request stays refused.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coracle::admin::{ApprovalScope, decide_request};
use coracle_context::Context;
use coracle_context::approvals::{self, RefusedRequest, RuleList};
use coracle_prepare::Process;
use jiff::Timestamp;
use rmcp::RoleServer;
use rmcp::model::{ElicitRequestParams, ElicitationAction};
use rmcp::service::{ElicitationMode, Peer};
use serde_json::{Value, json};

/// How often to look for waiting requests.
const LOOKS: Duration = Duration::from_millis(300);

/// The requests that were shown: of several calls that run, one asks.
pub(super) type ShownRequests = Arc<Mutex<BTreeSet<(String, Option<Timestamp>)>>>;

/// Asks about each request of the session that waits, until it is dropped. Its proxy may be in another process.
pub(super) async fn ask(process: &Process, peer: &Peer<RoleServer>, shown: ShownRequests) {
    let cx = &process.context;
    if !RuleList::has_wait(&cx.config) || !peer.supported_elicitation_modes().contains(&ElicitationMode::Form) {
        return pending().await;
    }
    loop {
        tokio::time::sleep(LOOKS).await;
        for (container, request) in waiting(cx) {
            let key = (request.id.clone(), request.waits_until);
            let is_new = shown.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
            if is_new
                && let Some(scope) = answer(&container, &request, peer).await
                && let Err(failure) = decide_request(process, &request.id, scope).await
            {
                tracing::warn!("the decision about a request is not recorded: {}", failure.message);
            }
        }
    }
}

/// The requests of the session's containers that wait, each with its container.
fn waiting(cx: &Context) -> Vec<(String, RefusedRequest)> {
    let all = cx.state().and_then(approvals::all).unwrap_or_default();
    let own = all.iter().filter(|(_, it)| it.session.as_ref() == Some(&cx.call.session));
    own.flat_map(|(_, it)| it.waiting().map(|request| (it.container.clone(), request.clone()))).collect()
}

/// Shows the form, and returns the decision, which has no scope for a denial. None if the user made none.
async fn answer(container: &str, request: &RefusedRequest, peer: &Peer<RoleServer>) -> Option<Option<ApprovalScope>> {
    let form: ElicitRequestParams = serde_json::from_value(form(container, request)).ok()?;
    let answer = match peer.create_elicitation(form).await {
        Ok(answer) => answer,
        Err(err) => {
            tracing::debug!(%err, "the client shows no form");
            return None;
        }
    };
    let decision = answer.content.as_ref().and_then(|it| it.get("decision")).and_then(Value::as_str);
    match (answer.action, decision) {
        (ElicitationAction::Accept, Some("once")) => Some(Some(ApprovalScope::Once)),
        (ElicitationAction::Accept, Some("session")) => Some(Some(ApprovalScope::Session)),
        (ElicitationAction::Accept, Some("always")) => Some(Some(ApprovalScope::Always)),
        (ElicitationAction::Accept, Some("deny")) | (ElicitationAction::Decline, _) => Some(None),
        _ => None,
    }
}

fn form(container: &str, request: &RefusedRequest) -> Value {
    let reason = request.reason.as_ref().map(|it| format!("\n\nThe agent's reason: {it}")).unwrap_or_default();
    let message = format!(
        "The container `{container}` requests network access that no rule allows:\n\n{} ({}){reason}",
        request.rule, request.code
    );
    let decision = json!({
        "type": "string",
        "title": "Decision",
        "description": "once: this request; session: the rule, as long as the container exists; always: the rule, in your configuration",
        "enum": ["once", "session", "always", "deny"],
    });
    let schema = json!({ "type": "object", "properties": { "decision": decision }, "required": ["decision"] });
    json!({ "mode": "form", "message": message, "requestedSchema": schema })
}

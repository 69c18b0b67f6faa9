//! Requests of a test to a server in another process: `POST /test/VERB`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::faults::{Fault, FaultRule};
use crate::scheduler;
use crate::status::{Refusal, json_response};
use crate::store::Key;

pub(crate) fn serve(cluster: &Arc<Cluster>, verb: &str, body: &str) -> Result<Response<Body>, Refusal> {
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |field: &str| request[field].as_str().unwrap_or_default().to_owned();
    match verb {
        "audit" => {
            let lines = cluster.audit.lines();
            let line = |it: &crate::audit::AuditLine| json!({ "method": it.method, "uri": it.uri, "body": it.body, "code": it.code });
            return Ok(json_response(200, &lines.iter().map(line).collect()));
        }
        "fault" => {
            let number = request["value"].as_u64().unwrap_or(0);
            let small = u32::try_from(number).unwrap_or(u32::MAX);
            let fault = match text("fault").as_str() {
                "too_many_requests" => Fault::TooManyRequests(small),
                "internal_error" => Fault::InternalError,
                "unavailable" => Fault::Unavailable,
                "slow" => Fault::Slow(Duration::from_millis(number)),
                "webhook" => Fault::Webhook(text("message")),
                "cut_stream" => Fault::CutStream(small as usize),
                other => return Err(Refusal::bad_request(format!("`{other}` is no fault"))),
            };
            let times = request["times"].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(1);
            cluster.faults.add(FaultRule { fault, method: text("method"), path: text("path"), times });
        }
        "clear" => cluster.faults.clear(),
        "lose-node" => scheduler::lose(cluster, &text("node")),
        "return-node" => scheduler::bring_back(cluster, &text("node")),
        "evict" => evict(cluster, &text("namespace"), &text("pod")),
        "forget" => cluster.store.forget(),
        other => return Err(Refusal::bad_request(format!("`{other}` is no verb of tests"))),
    }
    Ok(json_response(200, &json!({})))
}

/// Evicts a Pod, as a node does that is short of memory.
pub(crate) fn evict(cluster: &Cluster, namespace: &str, name: &str) {
    let pod = cluster.store.get(&Key::pod(namespace, name));
    let uid = pod.and_then(|it| it["metadata"]["uid"].as_str().map(str::to_owned));
    if let Some(run) = uid.and_then(|it| cluster.run_of(&it)) {
        run.evict.notify_one();
    }
}

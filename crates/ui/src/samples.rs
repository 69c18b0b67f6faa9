//! What containers use, over the time that the page's server runs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use coracle::{CallInput, Process, operations, reply};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Between two samples that are kept.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// Requests of the page look at engines at most once in this time.
const FRESH: Duration = Duration::from_secs(1);

/// Samples of a container: an hour of them.
const KEPT: usize = 720;

/// What a container used at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct UsageSample {
    /// Milliseconds since 1970.
    at: i64,
    cpu_percent: Option<f64>,
    memory_bytes: Option<u64>,
}

/// The newest look at all containers, and samples of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct UsageHistory(Mutex<HistoryState>);

#[derive(Debug, Default)]
struct HistoryState {
    looked: Option<Instant>,
    kept: Option<Instant>,
    answer: Map<String, Value>,
    samples: BTreeMap<String, VecDeque<UsageSample>>,
}

impl UsageHistory {
    /// The containers as they are now, with what they use. `changed` looks anew in any case.
    pub(crate) async fn machines(&self, process: &Process, changed: bool) -> Map<String, Value> {
        let mut state = self.0.lock().await;
        if changed || state.looked.is_none_or(|it| it.elapsed() >= FRESH) {
            state.answer = inspect(process).await;
            state.looked = Some(Instant::now());
            if state.kept.is_none_or(|it| it.elapsed() >= EVERY - FRESH) {
                state.keep(Timestamp::now().as_millisecond());
                state.kept = Some(Instant::now());
            }
        }
        state.answer.clone()
    }

    /// Samples of one container, oldest first.
    pub(crate) async fn of_container(&self, name: &str) -> Map<String, Value> {
        let state = self.0.lock().await;
        let samples: Vec<_> = state.samples.get(name).into_iter().flatten().collect();
        Map::from_iter([
            ("success".to_owned(), true.into()),
            ("every_seconds".to_owned(), EVERY.as_secs().into()),
            ("samples".to_owned(), json!(samples)),
        ])
    }
}

impl HistoryState {
    /// Keeps a sample of each container that runs, and none of one that is gone.
    fn keep(&mut self, at: i64) {
        let Some(rows) = self.answer.get("containers").and_then(Value::as_array) else { return };
        let id = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
        self.samples.retain(|name, _| rows.iter().any(|it| id(it) == *name));
        for row in rows.iter().filter(|it| it["running"] == true) {
            let samples = self.samples.entry(id(row)).or_default();
            let (cpu_percent, memory_bytes) = (row["cpu_percent"].as_f64(), row["memory_bytes"].as_u64());
            samples.push_back(UsageSample { at, cpu_percent, memory_bytes });
            if samples.len() > KEPT {
                samples.pop_front();
            }
        }
    }
}

/// `list`, with what `status` adds of each.
async fn inspect(process: &Process) -> Map<String, Value> {
    let mut listed = call(process, json!({ "operation": "list" })).await;
    let Some(rows) = listed.get_mut("containers").and_then(Value::as_array_mut) else { return listed };
    let statuses = rows.iter().map(|row| async {
        match row["running"] == true {
            true => call(process, json!({ "operation": "status", "container": row["name"] })).await,
            false => Map::new(),
        }
    });
    let statuses = futures_util::future::join_all(statuses).await;
    for (row, status) in rows.iter_mut().zip(statuses) {
        let status = Value::Object(status);
        row["cpu_percent"] = status["usage"]["cpu_percent"].clone();
        row["memory_bytes"] = status["usage"]["memory_bytes"].clone();
        row["memory_limit"] = status["limits"]["memory"].clone();
    }
    listed
}

async fn call(process: &Process, call: Value) -> Map<String, Value> {
    let Value::Object(call) = call else { return Map::new() };
    Box::pin(reply(operations::ALL, process, CallInput::Object(call))).await.json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(containers: Value) -> HistoryState {
        let answer = Map::from_iter([("containers".to_owned(), containers)]);
        HistoryState { answer, ..HistoryState::default() }
    }

    #[test]
    fn an_hour_of_a_running_container_is_kept() {
        let running = json!([{ "name": "web", "running": true, "cpu_percent": 1.5, "memory_bytes": 7 }]);
        let mut history = state(running);
        for at in 0..=i64::try_from(KEPT).unwrap() {
            history.keep(at);
        }
        let samples = &history.samples["web"];
        assert_eq!((samples.len(), samples[0].at, samples[0].memory_bytes), (KEPT, 1, Some(7)));
        history.answer = state(json!([{ "name": "web", "running": false }])).answer;
        history.keep(9000);
        assert_eq!(history.samples["web"].len(), KEPT);
        history.answer = state(json!([])).answer;
        history.keep(9001);
        assert!(history.samples.is_empty());
        // An engine that did not answer says nothing of them.
        history.answer = Map::new();
        history.keep(9002);
    }
}

//! What containers used in the last hour.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle::humanize::image_label;
use coracle::{CallInput, Code, Failure, Process, READ_AT_ONCE, operations, reply};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use crate::usage::{ContainerSample, KEPT_MS, UsageSample};
use crate::usage_log::UsageLog;

/// Between two samples that are kept.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// Requests of the page look at engines at most once in this time.
const FRESH: Duration = Duration::from_secs(1);

/// Samples of the container that has the name now, oldest first.
#[derive(Debug, Default)]
struct ContainerSamples {
    id: String,
    samples: VecDeque<UsageSample>,
}

/// After this time a container is shown without what it uses.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// After this time the page shows the last answer again, and the next request asks the engine again.
const LOOK_TIMEOUT: Duration = Duration::from_secs(15);

/// The newest look at all containers, and samples of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct UsageHistory {
    /// Held for moments only, so that an engine that does not answer holds no request up.
    state: Mutex<HistoryState>,
    /// One request at a time asks the engines.
    looks: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct HistoryState {
    looked: Option<Instant>,
    kept: Option<Instant>,
    answer: Map<String, Value>,
    samples: BTreeMap<String, ContainerSamples>,
    /// Missing where another page writes it, or where it cannot be opened.
    log: Option<UsageLog>,
    /// The last write to it failed, and that was said.
    is_log_refused: bool,
}

impl UsageHistory {
    /// Goes on with what the pages before have left in that directory.
    pub(crate) fn open(dir: &Path) -> Self {
        let now = Timestamp::now().as_millisecond();
        let (log, before) = UsageLog::open(dir, now).unwrap_or_else(|err| {
            tracing::warn!("what containers use is not kept for the next page: {}: {err}", dir.display());
            (None, vec![])
        });
        let mut state = HistoryState { log, ..HistoryState::default() };
        before.into_iter().for_each(|it| state.add(it));
        state.forget_before(now - KEPT_MS);
        Self { state: Mutex::new(state), looks: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, HistoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The containers as they are now, with what they use. `changed` looks anew in any case.
    pub(crate) async fn machines(&self, process: &Process, changed: bool) -> Map<String, Value> {
        self.refresh(changed, inspect(process)).await
    }

    /// While another request looks, and for an engine that does not answer in time, this is the last answer.
    async fn refresh(&self, changed: bool, inspect: impl Future<Output = Map<String, Value>>) -> Map<String, Value> {
        let (is_fresh, last) = {
            let state = self.state();
            (state.looked.is_some_and(|at| at.elapsed() < FRESH), state.answer.clone())
        };
        if is_fresh && !changed {
            return last;
        }
        let turn = match self.looks.try_lock() {
            Ok(turn) => turn,
            Err(_) if !changed && !last.is_empty() => return last,
            Err(_) => match timeout(LOOK_TIMEOUT, self.looks.lock()).await {
                Ok(turn) => turn,
                Err(_) => return slow(last),
            },
        };
        let Ok(answer) = timeout(LOOK_TIMEOUT, inspect).await else { return slow(last) };
        let mut state = self.state();
        state.answer = answer;
        state.looked = Some(Instant::now());
        if state.kept.is_none_or(|at| at.elapsed() >= EVERY - FRESH) {
            state.keep(Timestamp::now().as_millisecond());
            state.kept = Some(Instant::now());
        }
        drop(turn);
        state.answer.clone()
    }

    /// Samples of one container, oldest first.
    pub(crate) fn of_container(&self, name: &str) -> Map<String, Value> {
        let state = self.state();
        let samples: Vec<_> = state.samples.get(name).into_iter().flat_map(|it| &it.samples).collect();
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
        let word = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
        self.samples.retain(|name, _| rows.iter().any(|it| word(it, "name") == *name));
        let running = rows.iter().filter(|it| it["running"] == true);
        let new: Vec<_> = running
            .map(|row| {
                let (cpu_percent, memory_bytes) = (row["cpu_percent"].as_f64(), row["memory_bytes"].as_u64());
                let sample = UsageSample { at, cpu_percent, memory_bytes };
                ContainerSample { container: word(row, "name"), id: word(row, "id"), sample }
            })
            .collect();
        let written = self.log.as_mut().map_or(Ok(()), |it| it.append(&new, at));
        if let Err(err) = &written
            && !self.is_log_refused
        {
            tracing::warn!("what containers use is not kept for the next page at present: {err}");
        }
        self.is_log_refused = written.is_err();
        new.into_iter().for_each(|it| self.add(it));
        self.forget_before(at - KEPT_MS);
    }

    /// A name may be that of another container by now.
    fn add(&mut self, new: ContainerSample) {
        let of_container = self.samples.entry(new.container).or_default();
        if of_container.id != new.id {
            *of_container = ContainerSamples { id: new.id, samples: VecDeque::new() };
        }
        of_container.samples.push_back(new.sample);
    }

    fn forget_before(&mut self, oldest: i64) {
        for it in self.samples.values_mut() {
            while it.samples.pop_front_if(|it| it.at < oldest).is_some() {}
        }
    }
}

/// `list`, with what `status` adds of each.
async fn inspect(process: &Process) -> Map<String, Value> {
    let mut listed = call(process, json!({ "operation": "list" })).await;
    for key in ["containers", "others"] {
        for row in listed.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            let label = image_label(row["image"].as_str().unwrap_or_default(), row["purpose"].as_str());
            row["image_label"] = label.into();
        }
    }
    let Some(rows) = listed.get_mut("containers").and_then(Value::as_array_mut) else { return listed };
    let running: Vec<Option<Value>> =
        rows.iter().map(|row| (row["running"] == true).then(|| row["name"].clone())).collect();
    let statuses = futures_util::stream::iter(running).map(|name| async {
        let Some(name) = name else { return Map::new() };
        let status = call(process, json!({ "operation": "status", "container": name }));
        timeout(STATUS_TIMEOUT, status).await.unwrap_or_default()
    });
    let statuses: Vec<_> = statuses.buffered(READ_AT_ONCE).collect().await;
    for (row, status) in rows.iter_mut().zip(statuses) {
        let status = Value::Object(status);
        row["cpu_percent"] = status["usage"]["cpu_percent"].clone();
        row["memory_bytes"] = status["usage"]["memory_bytes"].clone();
        row["memory_limit"] = status["limits"]["memory"].clone();
    }
    listed
}

/// The last answer; without one, what a page shows for an engine that does not answer.
fn slow(last: Map<String, Value>) -> Map<String, Value> {
    if !last.is_empty() {
        return last;
    }
    let message = format!("no engine answered within {} s", LOOK_TIMEOUT.as_secs());
    Failure::new(Code::EngineUnavailable, message).hint("see `coracle preflight`").answer(Some("list"))
}

async fn call(process: &Process, call: Value) -> Map<String, Value> {
    let Value::Object(call) = call else { return Map::new() };
    Box::pin(reply(operations::ALL, process, CallInput::Object(call))).await.json
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn state(containers: Value) -> HistoryState {
        let answer = Map::from_iter([("containers".to_owned(), containers)]);
        HistoryState { answer, ..HistoryState::default() }
    }

    #[test]
    fn an_hour_of_a_running_container_is_kept() {
        let running = |id: &str| json!([{ "name": "web", "id": id, "running": true, "memory_bytes": 7 }]);
        let mut history = state(running("1"));
        for at in [0, 5000, KEPT_MS + 1] {
            history.keep(at);
        }
        let kept = |it: &HistoryState| it.samples["web"].samples.iter().map(|it| it.at).collect::<Vec<_>>();
        assert_eq!(kept(&history), [5000, KEPT_MS + 1]);
        assert_eq!(history.samples["web"].samples[0].memory_bytes, Some(7));
        history.answer = state(json!([{ "name": "web", "id": "1", "running": false }])).answer;
        history.keep(KEPT_MS + 2);
        assert_eq!(kept(&history).len(), 2);
        history.answer = state(running("2")).answer;
        history.keep(KEPT_MS + 3);
        assert_eq!(kept(&history), [KEPT_MS + 3], "another container of that name");
        history.answer = state(json!([])).answer;
        history.keep(KEPT_MS + 4);
        assert!(history.samples.is_empty());
        // An engine that did not answer says nothing of them.
        history.answer = Map::new();
        history.keep(KEPT_MS + 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_does_not_answer_holds_no_request_up() {
        let history = UsageHistory::default();
        let answer = |name: &str| Map::from_iter([("containers".to_owned(), json!([{ "name": name }]))]);
        let at_once = async |name: &str, changed| history.refresh(changed, async { answer(name) }).await;
        assert_eq!(at_once("first", false).await, answer("first"));
        tokio::time::advance(FRESH).await;
        let hangs = history.refresh(false, std::future::pending());
        tokio::pin!(hangs);
        assert!(hangs.as_mut().now_or_never().is_none());
        let began = Instant::now();
        assert_eq!(at_once("second", false).await, answer("first"), "another request looks");
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(hangs.await, answer("first"));
        assert_eq!(began.elapsed(), LOOK_TIMEOUT);
        assert_eq!(at_once("third", true).await, answer("third"));
        let never = UsageHistory::default();
        assert_eq!(never.refresh(false, std::future::pending()).await["code"], "engine_unavailable");
    }

    #[test]
    fn the_next_page_goes_on_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = UsageHistory::open(dir.path());
        let at = Timestamp::now().as_millisecond();
        {
            let mut state = first.state();
            state.answer =
                self::state(json!([{ "name": "web", "id": "1", "running": true, "cpu_percent": 1.5 }])).answer;
            state.keep(at - KEPT_MS - 1000);
            state.keep(at);
        }
        let beside = UsageHistory::open(dir.path());
        assert!(beside.state().log.is_none(), "two would write");
        drop(first);
        let next = UsageHistory::open(dir.path());
        let samples = next.of_container("web")["samples"].clone();
        assert_eq!(samples, json!([{ "at": at, "cpu_percent": 1.5, "memory_bytes": null }]));
        assert!(next.state().log.is_some());
    }
}

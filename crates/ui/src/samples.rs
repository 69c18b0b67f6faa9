//! Resource usage of containers in the last hour.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle::operations::{ContainerRow, List, ListResponse, OtherRow, StatusOf, StatusResponse};
use coracle::{READ_AT_ONCE, query};
use coracle_context::humanize::image_label;
use coracle_context::{Code, Failure};
use coracle_prepare::Process;
use coracle_types::Handle;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use crate::usage::{ContainerSample, RETENTION_MS, UsageSample};
use crate::usage_log::UsageLog;

/// Interval of samples.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// Minimum interval between two inspections of the engines.
const FRESH: Duration = Duration::from_secs(1);

/// Samples of the container that has the name now, oldest first.
#[derive(Debug, Default)]
struct ContainerSamples {
    id: String,
    samples: VecDeque<UsageSample>,
}

/// Timeout of a container's usage, after which it is shown without.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of an inspection, after which the page shows the last result and the next request tries again.
const LOOK_TIMEOUT: Duration = Duration::from_secs(15);

/// The latest state of all containers, and earlier samples.
#[derive(Debug, Default)]
pub(crate) struct UsageHistory {
    /// Locked only briefly, so that a slow engine delays no request.
    state: Mutex<HistoryState>,
    /// Locked by the one request that contacts the engines.
    looks: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct HistoryState {
    looked: Option<Instant>,
    sampled: Option<Instant>,
    last: Option<Machines>,
    samples: BTreeMap<String, ContainerSamples>,
    /// None if another page writes it, or if it cannot be opened.
    log: Option<UsageLog>,
    /// The last write failed, and was logged.
    is_log_refused: bool,
}

/// The containers at one time, as the page shows them, or why they are not known.
type Machines = Result<Arc<MachineList>, Failure>;

/// The result of `list`, with fields of `status` for each container.
#[derive(Debug, Default, Serialize)]
pub(crate) struct MachineList {
    containers: Vec<MachineRow>,
    count: usize,
    unverified: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<OtherMachineRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<String>,
    success: bool,
}

#[derive(Debug, Serialize)]
struct MachineRow {
    #[serde(flatten)]
    row: ContainerRow,
    image_label: String,
    cpu_percent: Option<f64>,
    memory_bytes: Option<u64>,
    memory_limit: Option<u64>,
}

#[derive(Debug, Serialize)]
struct OtherMachineRow {
    #[serde(flatten)]
    row: OtherRow,
    image_label: String,
}

/// The samples of a container.
#[derive(Clone, Debug, Default)]
struct MachineReading {
    name: String,
    id: String,
    is_running: bool,
    cpu_percent: Option<f64>,
    memory_bytes: Option<u64>,
}

impl MachineList {
    fn readings(&self) -> Vec<MachineReading> {
        let reading = |machine: &MachineRow| MachineReading {
            name: machine.row.name.clone(),
            id: machine.row.id.clone().unwrap_or_default(),
            is_running: machine.row.running,
            cpu_percent: machine.cpu_percent,
            memory_bytes: machine.memory_bytes,
        };
        self.containers.iter().map(reading).collect()
    }
}

impl UsageHistory {
    /// Continues with the samples of earlier pages in that directory.
    pub(crate) fn open(dir: &Path) -> Self {
        let now = Timestamp::now().as_millisecond();
        let (log, before) = UsageLog::open(dir, now).unwrap_or_else(|err| {
            tracing::warn!("cannot store the usage of containers: {}: {err}", dir.display());
            (None, vec![])
        });
        let mut state = HistoryState { log, ..HistoryState::default() };
        before.into_iter().for_each(|it| state.add(it));
        state.forget_before(now - RETENTION_MS);
        Self { state: Mutex::new(state), looks: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, HistoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current containers with their usage. `changed` forces an inspection.
    pub(crate) async fn machines(&self, process: &Process, changed: bool) -> Map<String, Value> {
        let machines = self.refresh(changed, inspect(process)).await;
        let json = machines.and_then(|list| serde_json::to_value(&*list).map_err(Failure::internal));
        match json {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => Failure::internal("the list of machines is no object").answer(Some("list")),
            Err(failure) => failure.answer(Some("list")),
        }
    }

    /// Returns the last result while another request inspects the engines, or if an engine does not answer in time.
    async fn refresh(&self, changed: bool, inspect: impl Future<Output = Machines>) -> Machines {
        let (is_fresh, last) = {
            let state = self.state();
            (state.looked.is_some_and(|at| at.elapsed() < FRESH), state.last.clone())
        };
        let turn = match (last, self.looks.try_lock()) {
            (Some(last), _) if is_fresh && !changed => return last,
            (_, Ok(turn)) => turn,
            (Some(last), Err(_)) if !changed => return last,
            (last, Err(_)) => match timeout(LOOK_TIMEOUT, self.looks.lock()).await {
                Ok(turn) => turn,
                Err(_) => return last.unwrap_or_else(no_engine),
            },
        };
        let Ok(machines) = timeout(LOOK_TIMEOUT, inspect).await else {
            return self.state().last.clone().unwrap_or_else(no_engine);
        };
        let mut state = self.state();
        state.last = Some(machines.clone());
        state.looked = Some(Instant::now());
        if state.sampled.is_none_or(|at| at.elapsed() >= EVERY - FRESH) {
            // An engine that did not answer proves nothing about its containers.
            if let Ok(list) = &machines {
                state.record(Timestamp::now().as_millisecond(), &list.readings());
            }
            state.sampled = Some(Instant::now());
        }
        drop(turn);
        machines
    }

    /// Returns the samples of one container, oldest first.
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
    /// Adds a sample of each running container, and drops those of removed ones.
    fn record(&mut self, at: i64, seen: &[MachineReading]) {
        self.samples.retain(|name, _| seen.iter().any(|reading| reading.name == *name));
        let running = seen.iter().filter(|reading| reading.is_running);
        let new: Vec<_> = running
            .map(|reading| {
                let MachineReading { cpu_percent, memory_bytes, .. } = *reading;
                let sample = UsageSample { at, cpu_percent, memory_bytes };
                ContainerSample { container: reading.name.clone(), id: reading.id.clone(), sample }
            })
            .collect();
        let written = self.log.as_mut().map_or(Ok(()), |it| it.append(&new, at));
        if let Err(err) = &written
            && !self.is_log_refused
        {
            tracing::warn!("cannot store the usage of containers: {err}");
        }
        self.is_log_refused = written.is_err();
        new.into_iter().for_each(|it| self.add(it));
        self.forget_before(at - RETENTION_MS);
    }

    /// Adds a sample. The name may belong to another container by now.
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

/// Lists the containers with their usage.
async fn inspect(process: &Process) -> Machines {
    let ListResponse { containers, others, as_of, unverified, .. } = Box::pin(query(process, List {})).await?;
    let machines = futures_util::stream::iter(containers).map(|row| async {
        let status = if row.running { status(process, &row.name).await } else { None };
        let usage = status.as_ref().and_then(|status| status.usage.as_ref());
        MachineRow {
            image_label: image_label(&row.image, row.purpose.as_deref()),
            cpu_percent: usage.map(|usage| usage.cpu_percent),
            memory_bytes: usage.map(|usage| usage.memory_bytes),
            memory_limit: status.as_ref().and_then(StatusResponse::memory_limit),
            row,
        }
    });
    let containers: Vec<_> = machines.buffered(READ_AT_ONCE).collect().await;
    let others = others.into_iter().map(|row| {
        let image_label = image_label(&row.image, row.purpose.as_deref());
        OtherMachineRow { row, image_label }
    });
    let (count, others) = (containers.len(), others.collect());
    Ok(Arc::new(MachineList { containers, count, unverified, others, as_of, success: true }))
}

async fn status(process: &Process, name: &str) -> Option<StatusResponse> {
    let request = StatusOf { container: Handle::parse(name).ok()?, health_check: None };
    timeout(STATUS_TIMEOUT, Box::pin(query(process, request))).await.ok()?.ok()
}

/// The result for an engine that has not answered yet.
fn no_engine() -> Machines {
    let message = format!("no engine answered within {} s", LOOK_TIMEOUT.as_secs());
    Err(Failure::new(Code::EngineUnavailable, message).hint("see `coracle preflight`"))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn running(id: &str) -> MachineReading {
        let (name, id) = ("web".to_owned(), id.to_owned());
        MachineReading { name, id, is_running: true, memory_bytes: Some(7), ..MachineReading::default() }
    }

    #[test]
    fn samples_of_an_hour_are_retained() {
        let mut history = HistoryState::default();
        for at in [0, 5000, RETENTION_MS + 1] {
            history.record(at, &[running("1")]);
        }
        let times = |state: &HistoryState| state.samples["web"].samples.iter().map(|it| it.at).collect::<Vec<_>>();
        assert_eq!(times(&history), [5000, RETENTION_MS + 1]);
        assert_eq!(history.samples["web"].samples[0].memory_bytes, Some(7));
        history.record(RETENTION_MS + 2, &[MachineReading { is_running: false, ..running("1") }]);
        assert_eq!(times(&history).len(), 2);
        history.record(RETENTION_MS + 3, &[running("2")]);
        assert_eq!(times(&history), [RETENTION_MS + 3], "another container of that name");
        history.record(RETENTION_MS + 4, &[]);
        assert!(history.samples.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_engine_delays_no_request() {
        let history = UsageHistory::default();
        let list = |count| -> Machines { Ok(Arc::new(MachineList { count, ..MachineList::default() })) };
        let count = |machines: Machines| machines.unwrap().count;
        let at_once = async |number, changed| count(history.refresh(changed, async { list(number) }).await);
        assert_eq!(at_once(1, false).await, 1);
        tokio::time::advance(FRESH).await;
        let hangs = history.refresh(false, std::future::pending());
        tokio::pin!(hangs);
        assert!(hangs.as_mut().now_or_never().is_none());
        let began = Instant::now();
        assert_eq!(at_once(2, false).await, 1, "another request inspects the engines");
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(count(hangs.await), 1);
        assert_eq!(began.elapsed(), LOOK_TIMEOUT);
        assert_eq!(at_once(3, true).await, 3);
        let never = UsageHistory::default();
        let failure = never.refresh(false, std::future::pending()).await.unwrap_err();
        assert_eq!(failure.code.word(), "engine_unavailable");
    }

    #[test]
    fn the_next_page_continues_with_the_samples() {
        let dir = tempfile::tempdir().unwrap();
        let first = UsageHistory::open(dir.path());
        let at = Timestamp::now().as_millisecond();
        {
            let mut state = first.state();
            let seen = [MachineReading { cpu_percent: Some(1.5), memory_bytes: None, ..running("1") }];
            state.record(at - RETENTION_MS - 1000, &seen);
            state.record(at, &seen);
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

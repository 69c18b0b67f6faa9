//! The containers of all sessions with what they use, for the user's metrics.

use std::time::Duration;

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_lifecycle::ContainerEntry;
use coracle_runtime::ContainerUsage;
use futures_util::stream::{self, StreamExt as _};

use crate::commands::running;
use crate::operations::list;

/// A container is left without its usage after this long: the others are read all the same.
const READING: Duration = Duration::from_secs(3);

/// A container, with what it uses where that can be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageReading {
    /// Its name.
    pub name: String,
    /// The session that it belongs to.
    pub session: String,
    /// Its engine.
    pub engine: &'static str,
    /// The engine's word for its state, or `missing`.
    pub state: String,
    /// Processor time since it was started.
    pub cpu_seconds: Option<f64>,
    /// Memory, without what the kernel may drop at once.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Background jobs that run.
    pub jobs_running: usize,
}

/// Containers that are read at once: with some engines each is a program.
pub const READ_AT_ONCE: usize = 8;

/// Reads the containers of all sessions, as they are now.
///
/// # Errors
/// When an engine that a record names does not answer.
pub async fn read_usage(cx: &Context) -> Result<Vec<UsageReading>, Failure> {
    let listing = coracle_lifecycle::list_recent(cx.engines(), &cx.store()?).await?;
    let readings = stream::iter(listing.containers).map(async |entry| read_container(cx, &entry).await);
    Ok(readings.buffered(READ_AT_ONCE).collect().await)
}

async fn read_container(cx: &Context, entry: &ContainerEntry) -> UsageReading {
    let record = &entry.record;
    let jobs = async {
        match entry.container.as_ref().is_some_and(|it| it.running()) && !record.jobs.is_empty() {
            true => running(cx, record).await,
            false => 0,
        }
    };
    let (usage, jobs_running) = tokio::join!(usage_of(cx, entry), jobs);
    UsageReading {
        name: record.name.to_string(),
        session: record.session.clone(),
        engine: record.engine.as_str(),
        state: list::status(entry.container.as_deref()),
        cpu_seconds: usage.and_then(|it| it.cpu_seconds),
        memory_bytes: usage.map(|it| it.memory_bytes),
        processes: usage.map(|it| it.pids),
        jobs_running,
    }
}

/// `None` where it does not run, cannot be measured, or its engine takes too long.
async fn usage_of(cx: &Context, entry: &ContainerEntry) -> Option<ContainerUsage> {
    let container = entry.container.as_ref().filter(|it| it.running())?;
    let runtime = cx.runtime_for(entry.record.engine, &entry.record.endpoint).ok()?;
    tokio::time::timeout(READING, runtime.usage(&container.id)).await.ok()?.ok()?
}

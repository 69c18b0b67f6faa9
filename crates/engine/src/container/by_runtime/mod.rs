//! Containers whose processes an OCI runtime creates.
//!
//! | module | content |
//! |---|---|
//! | `run_directory` | directories and mounts of a running container |
//! | `start` | bundle, creation, network, start |
//! | `exec` | commands in a container with a kernel of its own |
//! | `files` | files of a running container with a kernel of its own |
//!
//! If a container has a kernel of its own, its processes are not processes of the host: the runtime's program executes its
//! commands. In other containers, the engine executes them as in those without a runtime.

mod exec;
mod files;
mod run_directory;
mod start;

use std::sync::Arc;

use coracle_types::Result;

pub(super) use self::exec::exec;
pub(super) use self::files::running_root;
use self::run_directory::RunDirectory;
pub(super) use self::start::start;
use super::containers::StoredContainer;
use crate::config::NetworkMode;
use crate::engine::Engine;
use crate::oci::{RuntimeCalls, RuntimeContainer, RuntimeNetwork};
use crate::oci_runtime::OciRuntime;
use crate::pending::{Operation, PendingOperation};

fn calls(engine: &Engine, container: &StoredContainer, runtime: OciRuntime) -> Result<RuntimeCalls> {
    let config = &container.config;
    let network = match config.network.mode {
        NetworkMode::None => RuntimeNetwork::Loopback,
        NetworkMode::Host | NetworkMode::Outgoing | NetworkMode::Named(_) => RuntimeNetwork::OfNamespace,
    };
    let paths = RunDirectory::new(engine, &config.id).for_runtime(runtime);
    RuntimeCalls::new(RuntimeContainer { runtime, paths, network, id: config.id.to_string() })
}

/// Removes what a run leaves outside the container's directory: the runtime's state, mounts and the bundle. Kills processes
/// that still run.
pub(super) async fn clear(engine: &Arc<Engine>, container: &StoredContainer) -> Result<()> {
    let Some(runtime) = container.config.runtime else { return Ok(()) };
    let run = RunDirectory::new(engine, &container.config.id);
    if !run.exists() {
        return Ok(());
    }
    // If the runtime is not installed any more, there is only its state to remove: the processes were killed by number.
    if let Ok(calls) = calls(engine, container, runtime)
        && let Err(err) = calls.delete().await
    {
        tracing::warn!(container = %container.config.name, %err, "the runtime keeps a container that has ended");
    }
    crate::blocking::blocking("remove the mounts of a container", move || run.remove()).await
}

/// A paused container with a kernel of its own.
#[derive(Debug)]
struct PausedContainer {
    calls: RuntimeCalls,
    pending: PendingOperation,
}

impl PausedContainer {
    /// Resumes the container. If that fails, the next repair tries again.
    async fn resume(self) -> Result<()> {
        self.calls.resume().await?;
        self.pending.finish();
        Ok(())
    }
}

/// Awaits `work` while a container with a kernel of its own is paused by its runtime: freezing its control group would not
/// make that kernel write its files first. Other containers are not paused here; their control group is frozen.
///
/// # Errors
/// That of `work`; otherwise that of resuming the container, which may then stay paused.
pub(crate) async fn while_paused<T>(
    engine: &Arc<Engine>,
    container: &StoredContainer,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(paused) = pause(engine, container).await? else { return work.await };
    let done = work.await;
    match (done, paused.resume().await) {
        (Ok(done), resumed) => resumed.map(|()| done),
        (Err(err), resumed) => {
            if let Err(err) = resumed {
                tracing::warn!(container = %container.config.name, %err, "the container stays paused");
            }
            Err(err)
        }
    }
}

async fn pause(engine: &Arc<Engine>, container: &StoredContainer) -> Result<Option<PausedContainer>> {
    let Some(runtime) = container.config.runtime.filter(|it| it.has_own_kernel()) else { return Ok(None) };
    if container.process()?.is_none() {
        return Ok(None);
    }
    let calls = calls(engine, container, runtime)?;
    let pending = engine.pending.begin(&Operation::FreezeContainer(container.config.id.clone()))?;
    calls.pause().await?;
    Ok(Some(PausedContainer { calls, pending }))
}

/// Resumes a container with a kernel of its own that was left paused. Does nothing if it runs or has ended.
pub(super) async fn repair_pause(engine: &Engine, container: &StoredContainer) -> Result<()> {
    let Some(runtime) = container.config.runtime.filter(|it| it.has_own_kernel()) else { return Ok(()) };
    if container.process()?.is_some()
        && let Err(err) = calls(engine, container, runtime)?.resume().await
    {
        tracing::debug!(container = %container.config.name, %err, "the runtime has nothing to resume");
    }
    Ok(())
}

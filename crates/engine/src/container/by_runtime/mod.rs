//! Containers whose processes an OCI runtime makes.
//!
//! | module | content |
//! |---|---|
//! | `run_directory` | directories and mounts of a container while it runs |
//! | `start` | bundle, creation, network, start |
//! | `exec` | commands in a container with a kernel of its own |
//! | `files` | its files as the host has them |
//!
//! With a kernel of its own, a container's processes are not the host's: its commands go through the runtime's program. In
//! the others the engine acts as in containers of its own.

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

/// Removes what a run leaves outside the container's directory: the runtime's memory, mounts and the bundle. Its processes
/// are ended if they are not.
pub(super) async fn clear(engine: &Arc<Engine>, container: &StoredContainer) -> Result<()> {
    let Some(runtime) = container.config.runtime else { return Ok(()) };
    let run = RunDirectory::new(engine, &container.config.id);
    if !run.exists() {
        return Ok(());
    }
    // A runtime that is not installed any more has no processes to forget: they were ended by their number.
    if let Ok(calls) = calls(engine, container, runtime)
        && let Err(err) = calls.delete().await
    {
        tracing::warn!(container = %container.config.name, %err, "the runtime keeps a container that has ended");
    }
    crate::blocking::blocking("remove the mounts of a container", move || run.remove()).await
}

/// A container with a kernel of its own whose processes stand still.
#[derive(Debug)]
struct PausedContainer {
    calls: RuntimeCalls,
    pending: PendingOperation,
}

impl PausedContainer {
    /// Lets its processes run again. Should that fail, the next repair tries it.
    async fn resume(self) -> Result<()> {
        self.calls.resume().await?;
        self.pending.finish();
        Ok(())
    }
}

/// Awaits `work` while the processes of a container with a kernel of its own stand still: no control group can freeze them
/// at a moment when its files are written. Others are frozen by the engine itself.
///
/// # Errors
/// That of `work`; else the processes may not run again.
pub(super) async fn while_paused<T>(
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
                tracing::warn!(container = %container.config.name, %err, "the container stands still");
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

/// Lets the processes of such a container run again whose pause was interrupted. One that runs, or has ended, is no error.
pub(super) async fn repair_pause(engine: &Engine, container: &StoredContainer) -> Result<()> {
    let Some(runtime) = container.config.runtime.filter(|it| it.has_own_kernel()) else { return Ok(()) };
    if container.process()?.is_some()
        && let Err(err) = calls(engine, container, runtime)?.resume().await
    {
        tracing::debug!(container = %container.config.name, %err, "the runtime has nothing to resume");
    }
    Ok(())
}

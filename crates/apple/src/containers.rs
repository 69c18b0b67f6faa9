//! Containers: ids are names, listings are filtered here, and the engine's word is checked.
//!
//! Its answers can be behind the truth, and a removal may meet a process that is ending: a removal is requested
//! until the listing lacks it.

use std::time::Duration;

use coracle_engine_program::{EngineArgs, EngineProgram, deadline};
use coracle_host::process::ProgramOutput;
use coracle_runtime::{Container, ContainerUsage, LabelFilter, Placed, RemovalOutcome};
use coracle_types::{ContainerId, Error, Excerpt, Handle, ImageRef, Result};

use crate::query::{find_images, query};
use crate::{args as words, read as answers};

/// Interval between queries of a container that is neither running nor stopped.
const SETTLES: Duration = Duration::from_millis(500);

/// How often the state is queried again.
const POLLS: usize = 3;

/// After each attempt to remove something.
const REMOVAL: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Interval between two readings of the processor time, which give a share.
const BETWEEN: Duration = Duration::from_millis(100);

/// All containers, each in a state that will stay.
pub(super) async fn list(program: &EngineProgram, filter: &LabelFilter) -> Result<Vec<Container>> {
    let mut found = Vec::new();
    for look in 0..=POLLS {
        let output = query(program, "list", words::list(), deadline::READ).await?.stdout.bytes();
        found = answers::containers(&output)?;
        if look == POLLS || !answers::unsettled(&output) {
            break;
        }
        tokio::time::sleep(SETTLES).await;
    }
    found.retain(|it| filter.admits(&it.labels));
    Ok(found)
}

/// The ids that a handle leads to: one at most.
pub(super) async fn ids_of(program: &EngineProgram, handle: &Handle) -> Result<Vec<String>> {
    let output = query(program, "list", words::list(), deadline::READ).await?;
    let ids = answers::containers(&output.stdout.bytes())?.into_iter().map(|it| it.id.to_string());
    Ok(ids.filter(|it| it.eq_ignore_ascii_case(handle.as_str())).collect())
}

/// A container in a state that will stay.
pub(super) async fn inspect(program: &EngineProgram, handle: &Handle) -> Result<Container> {
    let ended = inspect_settled(program, handle).await?;
    let missing = || Error::NoSuchContainer(handle.to_string());
    if ended.ok() {
        // The engine may take the first digits of an id for it.
        let is_meant = |it: &Container| match handle {
            Handle::Name(name) => it.name.eq_ignore_ascii_case(name.as_str()),
            Handle::IdPrefix(_) => true,
        };
        return answers::containers(&ended.stdout.bytes())?.into_iter().find(is_meant).ok_or_else(missing);
    }
    if ids_of(program, handle).await?.is_empty() { Err(missing()) } else { Err(program.failed("inspect", &ended)) }
}

async fn inspect_settled(program: &EngineProgram, handle: &Handle) -> Result<ProgramOutput> {
    let one = || program.run("inspect", words::inspect(handle.as_str()), deadline::READ);
    let mut output = one().await?;
    for _ in 0..POLLS {
        if !output.ok() || !answers::unsettled(&output.stdout.bytes()) {
            break;
        }
        tokio::time::sleep(SETTLES).await;
        output = one().await?;
    }
    Ok(output)
}

/// The arguments for creating a container. The engine finds images only by name, so this looks up a name of the chosen
/// image.
pub(super) async fn create(program: &EngineProgram, placed: &Placed) -> Result<EngineArgs> {
    // A value that cannot be encoded is refused before any program starts.
    let base = words::Base { reference: placed.spec().image.clone(), has_user: false };
    words::create(placed, &base)?;
    let found = find_images(program, &[placed.image().as_str().to_owned()]).await?;
    let named = found.first().and_then(|it| Some((it, ImageRef::parse(it.tags.first()?).ok()?)));
    let Some((image, reference)) = named else {
        let excerpt = Excerpt::from_bytes(format!("no image has the digest {}", placed.image()).as_bytes());
        return Err(Error::Engine { verb: "create", exit: 1, excerpt });
    };
    words::create(placed, &words::Base { reference, has_user: !image.config.user.is_empty() })
}

/// Stops a container that runs. Its state decides whether that is done, and if not, it is killed.
pub(super) async fn stop(program: &EngineProgram, id: &ContainerId, grace: Duration) -> Result<()> {
    let running = async || Ok::<_, Error>(inspect(program, &id.into()).await?.running());
    if !running().await? {
        return Ok(());
    }
    let stopped = program.run("stop", words::stop(id, grace), deadline::REMOVE + grace).await?;
    for look in 0..POLLS {
        if !running().await? {
            return Ok(());
        }
        if look == 0 {
            program.run("kill", words::kill(id), deadline::REMOVE).await?;
        }
        tokio::time::sleep(SETTLES).await;
    }
    Err(program.failed("stop", &stopped))
}

/// Removes until the listing lacks it.
pub(super) async fn remove(program: &EngineProgram, id: &ContainerId) -> Result<RemovalOutcome> {
    let handle = id.into();
    if ids_of(program, &handle).await?.is_empty() {
        return Ok(RemovalOutcome::AlreadyGone);
    }
    let mut excerpt = Excerpt::default();
    for (attempt, pause) in REMOVAL.into_iter().enumerate() {
        if attempt > 0 {
            // The reason may be a process that does not end.
            program.run("kill", words::kill(id), deadline::REMOVE).await?;
        }
        let deleted = program.run("delete", words::delete(id), deadline::REMOVE).await?;
        if ids_of(program, &handle).await?.is_empty() {
            return Ok(RemovalOutcome::Now);
        }
        excerpt = Excerpt::from_bytes(&deleted.stderr.bytes());
        tokio::time::sleep(pause).await;
    }
    if ids_of(program, &handle).await?.is_empty() {
        return Ok(RemovalOutcome::Now);
    }
    Err(Error::CleanupFailed { name: id.to_string(), excerpt })
}

/// The engine's own count: the container's machine is not one of this kernel.
pub(super) async fn usage(program: &EngineProgram, id: &ContainerId) -> Result<Option<ContainerUsage>> {
    let look = async || {
        let output = program.run("stats", words::stats(id), deadline::READ).await?;
        if output.ok() { answers::stats(&output.stdout.bytes()) } else { Ok(None) }
    };
    let begun = tokio::time::Instant::now();
    let Some(first) = look().await? else { return Ok(None) };
    tokio::time::sleep(BETWEEN).await;
    let Some(it) = look().await? else { return Ok(None) };
    let used = it.cpu_usage_usec.unwrap_or_default().saturating_sub(first.cpu_usage_usec.unwrap_or_default());
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a short while")]
    let cpu_percent = used as f64 / begun.elapsed().as_micros().max(1) as f64 * 100.0;
    let (memory, pids) = (it.memory_usage_bytes.unwrap_or_default(), it.num_processes.unwrap_or_default());
    let cpu_seconds = it.cpu_usage_usec.map(|it| Duration::from_micros(it).as_secs_f64());
    Ok(Some(ContainerUsage { memory_bytes: memory, pids, cpu_percent, disk_bytes: None, cpu_seconds }))
}

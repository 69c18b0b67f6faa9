//! Runs a program within limits of disk space, memory and time, and ends it with its whole tree.

use std::path::Path;
use std::time::Duration;

use coracle_types::{ExecLimits, Result};
use tokio::process::Child;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::drain::{Drain, DrainOutcome};
use crate::process::{Invocation, ProgramOutput, Stdin, spawn};
use crate::process_group::ProcessGroup;

const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// The limits of a git process.
#[derive(Clone, Debug)]
pub(super) struct GitLimits {
    pub(super) until: Instant,
    /// Maximum size of its directory.
    pub(super) max_bytes: u64,
    /// Maximum address space of it and of each program that it starts, if the system supports it.
    pub(super) memory: u64,
    /// Captured bytes of each output.
    pub(super) keep_bytes: usize,
}

#[derive(Debug)]
pub(super) enum LimitedOutcome {
    Itself(ProgramOutput),
    TooBig,
    TooSlow,
    Cancelled,
}

fn limit_memory(child: &Child, bytes: u64) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Pid, Resource, Rlimit, prlimit};
        // A process without the limit ends at once, before it starts others.
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        let pid = child.id().and_then(|it| Pid::from_raw(it.cast_signed()));
        if let Err(err) = pid.map_or(Ok(()), |pid| prlimit(Some(pid), Resource::As, limit).map(drop)) {
            tracing::debug!(%err, "a program has no limit of its memory");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (child, bytes);
}

/// Runs a program that writes below `dir`.
///
/// # Errors
/// When it cannot be started.
pub(super) async fn run(
    invocation: &Invocation,
    dir: &Path,
    limits: &GitLimits,
    cancel: &CancellationToken,
) -> Result<LimitedOutcome> {
    let mut child = spawn(invocation, Stdin::Empty)?;
    let mut group = ProcessGroup::new(&child);
    limit_memory(&child, limits.memory);
    let mut drain = Drain::new(&mut child, limits.keep_bytes, None);
    let time = limits.until.saturating_duration_since(Instant::now());
    let within = ExecLimits { total: Some(time), ..ExecLimits::default() };
    let end = tokio::select! {
        end = drain.until_end(&mut child, &within, cancel) => Some(end),
        () = outgrows(dir, limits.max_bytes) => None,
    };
    if let Some(DrainOutcome::Exited(exit)) = end {
        // It waits for its children, and its pid may soon be reused.
        group.ended();
        let (stdout, stderr) = drain.finish(&mut child).await;
        let too_big = size_of(dir) > limits.max_bytes;
        return Ok(if too_big {
            LimitedOutcome::TooBig
        } else {
            LimitedOutcome::Itself(ProgramOutput { exit, stdout, stderr })
        });
    }
    drop(group);
    let _ = child.wait().await;
    Ok(match end {
        None => LimitedOutcome::TooBig,
        Some(DrainOutcome::Cancelled) => LimitedOutcome::Cancelled,
        Some(_) => LimitedOutcome::TooSlow,
    })
}

async fn outgrows(dir: &Path, max_bytes: u64) {
    while size_of(dir) <= max_bytes {
        sleep(LOOKS_EVERY).await;
    }
}

/// Bytes in a directory. Files that are removed concurrently do not count.
fn size_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(it) if it.is_dir() => size_of(&entry.path()),
        Ok(it) => it.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

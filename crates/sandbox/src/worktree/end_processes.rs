//! Ends what runs in a worktree, so that nothing writes to it between its save and its removal.

use std::collections::BTreeSet;
use std::time::Duration;

use coracle_runtime::JobId;
use coracle_runtime::link::protocol::{ExecState, JobInfo};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::git_in_container::Workdir;
use crate::{Code, Failure, Result, WorkflowId};

/// Between the request to end and the end by force.
const GRACE: Duration = Duration::from_secs(5);

/// A process that was killed is gone within this time.
const GONE_WITHIN: Duration = Duration::from_secs(2);

const INTERVAL: Duration = Duration::from_millis(100);

/// Prints the id of each process that works in a directory, and sends it a signal unless that is `0`; and those of the
/// given processes that were started for a workflow. The shell that runs it is none of them.
const FIND: &str = r#"
tree=$1 workflow=$2 signal=$3
shift 3
jobs=" $* "
for at in /proc/[0-9]*; do
    pid=${at#/proc/}
    [ "$pid" = $$ ] && continue
    dir=$(cd -P "$at/cwd" 2>/dev/null && pwd -P) || dir=
    case "$dir/" in
        "$tree"/*) kill "-$signal" "$pid" 2>/dev/null && echo "$pid"; continue ;;
    esac
    case "$jobs" in
        *" $pid "*) tr '\0' '\n' 2>/dev/null < "$at/environ" | grep -qxF "CORACLE_WORKFLOW=$workflow" && echo "$pid" ;;
    esac
done
exit 0
"#;

/// What runs in a worktree.
struct Found {
    jobs: Vec<JobInfo>,
    is_empty: bool,
}

impl Workdir {
    /// What runs in a worktree: jobs, and other processes, which get that signal.
    async fn processes(&self, id: &WorkflowId, signal: &str) -> Result<Found> {
        let mut jobs = self.link.jobs().await.map_err(super::git_in_container::lost)?;
        jobs.retain(|job| job.end.state == ExecState::Running);
        let tree = self.tree_path(id);
        let pids: Vec<String> = jobs.iter().map(|job| job.pid.to_string()).collect();
        let words = ["/bin/sh", "-c", FIND, "sh", tree.as_str(), id.as_str(), signal];
        let words: Vec<&str> = words.into_iter().chain(pids.iter().map(String::as_str)).collect();
        let printed = self.run(&words).await?.good()?;
        let printed = String::from_utf8_lossy(&printed);
        let found: BTreeSet<u32> = printed.lines().filter_map(|line| line.trim().parse().ok()).collect();
        jobs.retain(|job| found.contains(&job.pid));
        Ok(Found { is_empty: found.is_empty(), jobs })
    }

    /// Whether anything runs in a worktree.
    ///
    /// # Errors
    /// When that cannot be determined.
    pub(super) async fn has_processes(&self, id: &WorkflowId) -> Result<bool> {
        Ok(!self.processes(id, "0").await?.is_empty)
    }

    /// Ends the commands of a worktree with all that they started, and whatever else works there.
    ///
    /// # Errors
    /// `busy` if something cannot be ended.
    pub(super) async fn end_processes(&self, id: &WorkflowId) -> Result<()> {
        let found = self.processes(id, "0").await?;
        if found.is_empty {
            return Ok(());
        }
        let mut ending = JoinSet::new();
        for job in &found.jobs {
            let Ok(job) = JobId::parse(&job.job) else { continue };
            let link = self.link.clone();
            ending.spawn(async move { link.cancel(&job, GRACE).await });
        }
        ending.join_all().await;
        if self.gone_after(id, "TERM", GRACE).await? || self.gone_after(id, "KILL", GONE_WITHIN).await? {
            return Ok(());
        }
        let message = format!("Something in the worktree of `{id}` cannot be ended, so nothing was removed.");
        Err(Failure::new(Code::Busy, message).hint("end its processes, then try again"))
    }

    /// Sends a signal, and waits until nothing is left.
    async fn gone_after(&self, id: &WorkflowId, signal: &str, within: Duration) -> Result<bool> {
        let until = Instant::now() + within;
        if self.processes(id, signal).await?.is_empty {
            return Ok(true);
        }
        while Instant::now() < until {
            sleep(INTERVAL).await;
            if !self.has_processes(id).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

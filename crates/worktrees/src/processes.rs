//! Ends the processes in a worktree, so that none writes to it between its save and its removal.

use std::collections::BTreeSet;
use std::time::Duration;

use coracle_client::Link;
use coracle_protocol::{ExecState, JobInfo};
use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{Command, ContainerPath, Error, Exec, Exit, Ids, JobId, WorkflowId};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(5);

/// How long a killed process may take to exit.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Timeout of a search of all processes.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(60);

const INTERVAL: Duration = Duration::from_millis(100);

/// Prints the id of each process that works in a directory, and sends it a signal unless that is `0`; likewise for
/// those of the given processes that were started for a workflow. Excludes its own shell.
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

/// The processes and jobs in a worktree.
struct RunningProcesses {
    jobs: Vec<JobInfo>,
    is_empty: bool,
}

/// Finds processes in a worktree of a container.
pub(crate) struct WorktreeProcesses<'a> {
    pub(crate) link: &'a Link,
    /// The owner of the processes.
    pub(crate) agent: Ids,
    /// The worktree's directory.
    pub(crate) tree: ContainerPath,
    pub(crate) workflow: &'a WorkflowId,
}

impl WorktreeProcesses<'_> {
    /// Finds the jobs and other processes in a worktree, and sends the others that signal.
    async fn processes(&self, signal: &str) -> Result<RunningProcesses> {
        let mut jobs = self.link.jobs().await.map_err(|err| lost(&err))?;
        jobs.retain(|job| job.end.state == ExecState::Running);
        let pids: Vec<String> = jobs.iter().map(|job| job.pid.to_string()).collect();
        let words = ["/bin/sh", "-c", FIND, "sh", self.tree.as_str(), self.workflow.as_str(), signal];
        let words = words.into_iter().map(str::to_owned).chain(pids).collect();
        let mut exec = Exec::new(Command::Argv(words), self.agent, ContainerPath::root());
        exec.limits.total = Some(SEARCH_TIMEOUT);
        let output = self.link.exec(exec).await.map_err(|err| lost(&err))?;
        let printed = output.stdout.text();
        if output.exit != Exit::Code(0) {
            let message = format!("What runs in the worktree cannot be determined: {}", output.stderr.text());
            return Err(Failure::new(Code::Busy, message));
        }
        let found: BTreeSet<u32> = printed.lines().filter_map(|line| line.trim().parse().ok()).collect();
        jobs.retain(|job| found.contains(&job.pid));
        Ok(RunningProcesses { is_empty: found.is_empty(), jobs })
    }

    /// Whether any process runs in a worktree.
    ///
    /// # Errors
    /// If that cannot be determined.
    pub(crate) async fn exist(&self) -> Result<bool> {
        Ok(!self.processes("0").await?.is_empty)
    }

    /// Ends the commands of a worktree with their child processes, and all other processes that work there.
    ///
    /// # Errors
    /// `busy` if something cannot be ended.
    pub(crate) async fn end(&self) -> Result<()> {
        let found = self.processes("0").await?;
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
        if self.gone_after("TERM", GRACE).await? || self.gone_after("KILL", GONE_WITHIN).await? {
            return Ok(());
        }
        let message =
            format!("Something in the worktree of `{}` cannot be ended, so nothing was removed.", self.workflow);
        Err(Failure::new(Code::Busy, message).hint("end its processes, then try again"))
    }

    /// Sends a signal, and waits until no process is left.
    async fn gone_after(&self, signal: &str, within: Duration) -> Result<bool> {
        let until = Instant::now() + within;
        if self.processes(signal).await?.is_empty {
            return Ok(true);
        }
        while Instant::now() < until {
            sleep(INTERVAL).await;
            if !self.exist().await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn lost(err: &Error) -> Failure {
    Failure::new(Code::SandboxLost, err.to_string())
}

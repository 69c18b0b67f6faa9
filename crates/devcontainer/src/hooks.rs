//! Runs the commands of a file inside, as the agent.

use std::time::{Duration, Instant};

use coracle_client::Link;
use coracle_types::{Command, ContainerPath, Excerpt, Exec, ExecLimits, Exit, Ids};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::definition::{Hook, LifecycleStage};

/// Timeout of each command.
const TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Maximum size of a command's output in a report.
const MAX_OUTPUT: usize = 4096;

/// The user and the directory of commands.
#[derive(Clone, Debug)]
pub struct RunAs<'a> {
    /// The link to the guest.
    pub link: &'a Link,
    /// The agent.
    pub user: Ids,
    /// The worktree.
    pub workdir: ContainerPath,
    /// Ends the running command.
    pub cancel: CancellationToken,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRan {
    /// The property.
    pub stage: LifecycleStage,
    /// Its name, if several ran concurrently.
    pub name: Option<String>,
    /// Its exit code, if it ended by itself.
    pub exit_code: Option<u8>,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// The end of its output.
    pub output: String,
    /// How long it took.
    pub duration_ms: u64,
}

/// Runs the commands of a stage to their end. Failed commands are in the result.
pub async fn run(stage: LifecycleStage, hook: &Hook, who: &RunAs<'_>) -> Vec<CommandRan> {
    match hook {
        Hook::One(command) => vec![one(stage, None, command, who).await],
        Hook::Together(all) => join_all(all.iter().map(|(name, it)| one(stage, Some(name), it, who))).await,
    }
}

async fn one(stage: LifecycleStage, name: Option<&String>, command: &Command, who: &RunAs<'_>) -> CommandRan {
    let begun = Instant::now();
    let exec = Exec {
        limits: ExecLimits { total: Some(TIMEOUT), ..ExecLimits::default() },
        keep_bytes: 2 * MAX_OUTPUT,
        cancel: who.cancel.clone(),
        ..Exec::new(command.clone(), who.user, who.workdir.clone())
    };
    let (exit_code, error, output) = match who.link.exec(exec).await {
        Ok(it) => {
            let (exit, error) = match it.exit {
                Exit::Code(0) => (Some(0), None),
                Exit::Code(code) => (Some(code), Some(format!("exit {code}"))),
                Exit::Cancelled => (None, Some("cancelled".to_owned())),
                _ => (None, Some(format!("not done within {} s", TIMEOUT.as_secs()))),
            };
            let printed = [it.stdout.bytes(), it.stderr.bytes()].concat();
            let end = &printed[printed.len().saturating_sub(MAX_OUTPUT)..];
            (exit, error, Excerpt::from_bytes(end).to_string())
        }
        Err(err) => (None, Some(err.to_string()), String::new()),
    };
    let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    CommandRan { stage, name: name.cloned(), exit_code, error, output, duration_ms }
}

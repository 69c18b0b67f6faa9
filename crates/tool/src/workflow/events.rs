//! `workflow_events`: what an agent did.

use std::time::Duration;

use coracle_context::arg_types::Seconds;
use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_sandbox::RunState;
use coracle_workspace::Alias;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::find;
use crate::dispatch::{Effect, Operation};
use crate::worktree::Workflow;

/// Events of one answer.
const MOST: usize = 200;

/// A call waits no longer.
const LONGEST: Duration = Duration::from_secs(120);

/// Between two looks while there is nothing new.
const LOOKS: Duration = Duration::from_millis(100);

/// What the agent of a workflow did: its words, calls of tools and their answers, in order. `next` goes on where an answer
/// ends.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WorkflowEvents {
    /// The workflow's id.
    workflow: Workflow,
    /// Only what comes after that number.
    #[schemars(extend("default" = 0))]
    after: Option<u64>,
    /// Seconds, or a text such as `90s`, to wait for something new; more than 120 s is 120 s.
    #[serde(alias = "wait_seconds")]
    #[schemars(extend("default" = 0))]
    timeout: Option<Seconds>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct WorkflowEventsResponse {
    events: Vec<Value>,
    next: u64,
    state: RunState,
}

impl Operation<Process> for WorkflowEvents {
    const NAME: &'static str = "workflow_events";
    const EFFECT: Effect = Effect::ReadOnly;
    const ALIASES: &'static [Alias] = &[Alias { name: "wait_seconds", of: "timeout" }];
    type Response = WorkflowEventsResponse;

    async fn run(self, process: &Process) -> Result<WorkflowEventsResponse, Failure> {
        let cx = &process.context;
        let after = self.after.unwrap_or(0);
        let until = Instant::now() + self.timeout.map_or(Duration::ZERO, |it| it.0.min(LONGEST));
        let (_, runs, _) = find(process, &self.workflow).await?;
        let mut seen = None;
        loop {
            // Reads the state first, so that an event that arrives in between is in the list.
            let state = runs.last()?.map_or(RunState::Lost, |it| it.state);
            // A record may be long, and is parsed again only if there is more of it.
            let bytes = runs.events_bytes()?;
            let is_longer = seen.replace(bytes) != Some(bytes);
            let events = if is_longer { runs.events(after, MOST)? } else { Vec::new() };
            if !events.is_empty() || state != RunState::Running || Instant::now() >= until {
                let next = events.last().and_then(|it| it["number"].as_u64()).unwrap_or(after);
                return Ok(WorkflowEventsResponse { events, next, state });
            }
            cx.unless_cancelled(async {
                sleep(LOOKS).await;
                Ok(())
            })
            .await?;
        }
    }
}

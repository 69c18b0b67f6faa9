//! `rewind`: gives a container the files of a checkpoint.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render};
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::count;
use coracle_runtime::{Checkpoint, CheckpointOutcome, CheckpointRequest};
use coracle_types::{ContainerName, Handle};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Checkpointed, Restarted, while_stopped};
use crate::commands;
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::{Access, check_policy};

/// Go back to a checkpoint, or undo what was done since the last one. Processes end, and the container starts again. Its
/// files are saved before.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Rewind {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    pub(crate) container: Handle,
    /// Number of a checkpoint, from `timeline`.
    pub(crate) checkpoint: Option<u64>,
    /// Do not save the files first, for a full disk.
    #[schemars(extend("default" = false))]
    pub(crate) skip_save: Option<bool>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct RewindResponse {
    #[schemars(with = "String")]
    container: ContainerName,
    checkpoint: u64,
    /// The checkpoint with the files that it had before, unless they were discarded.
    before: Option<u64>,
    jobs_ended: usize,
    /// Where something is mounted, which stays as it is.
    not_covered: Vec<String>,
}

impl Operation for Rewind {
    const NAME: &'static str = "rewind";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<RewindResponse>;
    type Response = RewindResponse;

    async fn run(self, cx: &Context) -> Result<RewindResponse, Failure> {
        let it = Checkpointed::reach(cx, &self.container, Access::Destroy).await?;
        check_policy(cx, &it.record, Access::Use)?;
        let all = it.checkpoints()?.checkpoints(&it.id).await?;
        match self.checkpoint {
            Some(number) => it.find(number).await?,
            None if all.is_empty() => return Err(nothing_to_undo(&it)),
            None => {}
        }
        let jobs_ended = commands::running(cx, &it.record).await;
        let restore = self.restore(&it, &all);
        let Restarted { changed, started } = while_stopped(cx, &*it.runtime, &it.record, &it.id, restore).await;
        let Rewound { checkpoint, before } = changed?;
        started?;
        // What its programs write at their start is no step: the next `rewind` would only undo that.
        cx.take_used();
        let Checkpointed { record, not_covered, .. } = it;
        Ok(RewindResponse { container: record.name, checkpoint, before, jobs_ended, not_covered })
    }
}

/// A container whose files were changed.
struct Rewound {
    checkpoint: u64,
    before: Option<u64>,
}

impl Rewind {
    /// Saves the files of a container that does not run, and changes them.
    async fn restore(&self, it: &Checkpointed, all: &[Checkpoint]) -> Result<Rewound, Failure> {
        if self.skip_save.unwrap_or(false) {
            // What was not saved is discarded: the current one is the last saved state.
            let current = all.iter().find(|it| it.is_current).map(|it| it.number);
            let checkpoint = self.checkpoint.or(current).ok_or_else(|| nothing_to_undo(it))?;
            it.checkpoints()?.rewind(&it.id, checkpoint).await?;
            return Ok(Rewound { checkpoint, before: None });
        }
        let note = match self.checkpoint {
            Some(number) => format!("before the rewind to {number}"),
            None => "before a rewind".to_owned(),
        };
        // Without limits: a limit would remove the oldest ones, and perhaps that one.
        let request = CheckpointRequest { note, is_step: true, ..CheckpointRequest::default() };
        let saved = it.checkpoints()?.checkpoint(&it.id, &request).await;
        let (before, parent) = match saved.map_err(|err| not_saved(it, err))? {
            CheckpointOutcome::Saved(saved) => (saved.number, saved.parent),
            CheckpointOutcome::Unchanged(number) => {
                // It may be one that another process has saved meanwhile.
                let all = it.checkpoints()?.checkpoints(&it.id).await?;
                (number, all.iter().find(|it| it.number == number).and_then(|it| it.parent))
            }
            CheckpointOutcome::TooLarge => return Err(Failure::internal("a checkpoint without a limit was too large")),
        };
        let checkpoint = self.checkpoint.or(parent).ok_or_else(|| nothing_to_undo(it))?;
        it.checkpoints()?.rewind(&it.id, checkpoint).await?;
        Ok(Rewound { checkpoint, before: Some(before) })
    }
}

fn not_saved(it: &Checkpointed, err: coracle_types::Error) -> Failure {
    Failure::from(err)
        .known("container", &it.record.name)
        .hint("nothing was undone; with `skip_save`, the files that it has now are lost")
}

fn nothing_to_undo(it: &Checkpointed) -> Failure {
    let message = format!("`{}` has no earlier checkpoint", it.record.name);
    Failure::new(Code::NotFound, message)
        .hint("`checkpoint` saves its files, before something that may have to be undone; `checkpoints.steps = \"always\"` does after each call")
}

impl Render for RewindResponse {
    fn render(&self, _: Timestamp) -> Document {
        let jobs = match self.jobs_ended {
            0 => String::new(),
            jobs => format!("; {} ended", count(jobs as u64, "job", "jobs")),
        };
        let name = &self.container;
        let undo = match self.before {
            Some(before) => format!("coracle rewind {name} {before}"),
            None => "not possible: the files were not saved".to_owned(),
        };
        Document::line(format!("{name} has the files of checkpoint {}{jobs}", self.checkpoint))
            .facts([("undo", undo.into())])
            .and_lines(crate::snapshot::without(&self.not_covered))
            .timed()
    }
}

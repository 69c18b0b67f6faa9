//! `race`: several attempts at a task, each in a copy of a container. The first one that passes wins, and the container gets
//! its files.
//!
//! **Invariant:** until there is a winner, the container is only read. Copies of attempts that did not win are removed, also
//! after an error and after a cancel.

mod attempt;
mod response;
mod winner;

use coracle_context::arg_types::{Name, Script, Seconds};
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_context::progress::Progress;
use coracle_context::steps;
use coracle_context::warning::Warning;
use coracle_lifecycle::{ManagedContainer, Record, Role};
use coracle_types::{Handle, random_hex};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use self::attempt::{Attempt, Course, Outcome};
use self::response::Ended;
pub(crate) use self::response::RaceResponse;
use self::winner::{save, take_files};
use crate::checkpoints::Restarted;
use crate::commands;
use crate::commands::check_command;
use crate::dispatch::{Effect, Operation};
use crate::fork::remove_copy;
use crate::schema::result_schema;
use crate::target::{Access, check_policy, reach};

/// Numbers of attempts.
const FEWEST: u32 = 2;
const MOST: u32 = 16;
const USUAL: u32 = 3;

/// Characters of the container's name in those of the copies, which have at most 63.
const MAX_PREFIX: usize = 48;

/// Run a command in several copies of a container at once. The container gets the files of the first one that passes. `$ATTEMPT`
/// is the number of a copy.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Race {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// What to run: a text for `/bin/sh -c`, or a list of words that runs as it stands.
    command: Script,
    /// Command that runs afterwards and decides by its exit code; without it, `command` does.
    test: Option<Script>,
    /// Copies, 2 to 16.
    #[schemars(extend("default" = 3))]
    attempts: Option<u32>,
    /// Seconds (or `90s`, `10m`) before a wait ends, or a command and everything it started is ended (`exec_background`: 0
    /// is never).
    #[schemars(extend("default" = 300))]
    timeout: Option<Seconds>,
    /// Leave the container as it is, beside the winner's copy.
    #[schemars(extend("default" = false))]
    keep_winner: Option<bool>,
}

impl Operation for Race {
    const NAME: &'static str = "race";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<RaceResponse>;
    type Response = RaceResponse;

    async fn run(self, cx: &Context) -> Result<RaceResponse, Failure> {
        let count = self.attempts.unwrap_or(USUAL);
        if !(FEWEST..=MOST).contains(&count) {
            return Err(Failure::invalid("attempts", format!("from {FEWEST} to {MOST}")));
        }
        for command in std::iter::once(&self.command).chain(&self.test) {
            check_command(&cx.config, command, self.timeout)?;
        }
        let parent = reach(cx, &self.container, Access::Destroy).await?;
        steps::settled(cx, &parent.record.record_id).await;
        check_policy(cx, &parent.record, Access::Use)?;
        may_be_copied(&parent.record)?;
        let course = self.course(cx, &parent, count).await?;
        let attempts = Box::pin(run_all(cx, &course)).await;
        let ended = Box::pin(self.end(cx, &parent, &attempts)).await;
        let stays = ended.as_ref().ok().and_then(|it| it.winner_container.clone());
        let left = remove(cx, attempts.iter().filter(|it| it.container != stays)).await;
        match ended {
            Ok(ended) => {
                cx.warn(left.into_iter().map(|it| Warning::new("copy_left", it.message.clone())));
                Ok(RaceResponse::new(parent.record.name, ended, attempts))
            }
            Err(failure) => Err(with_left(failure, &left)),
        }
    }
}

impl Race {
    /// What all attempts have in common. They begin with the same files: those of a checkpoint, where the engine has them.
    async fn course(&self, cx: &Context, parent: &ManagedContainer, attempts: u32) -> Result<Course, Failure> {
        let container = parent.present()?;
        let checkpoint = match parent.runtime.as_checkpoints() {
            Some(checkpoints) => {
                cx.call.progress.message(format!("saving the files of {}", parent.record.name)).await;
                Some(save(checkpoints, &container.id, "before a race").await?)
            }
            None => None,
        };
        let prefix: String = parent.record.name.as_str().chars().take(MAX_PREFIX).collect();
        Ok(Course {
            container: Handle::from(&container.id),
            command: self.command.clone(),
            test: self.test.clone(),
            // Also at a terminal: a command that never ends would be an attempt that never ends.
            timeout: self.timeout.unwrap_or(cx.config.exec.timeout),
            attempts,
            checkpoint,
            name: format!("{prefix}-race-{}", random_hex::<2>()),
            passthrough: attempt::passthrough(cx, &parent.record)?,
            network: attempt::network(cx, parent).await?,
            limits: container.limits,
            variables: parent.record.env_plain.clone(),
            user: parent.record.exec_user,
        })
    }

    /// Decides what becomes of the container and of the winner's copy.
    async fn end(&self, cx: &Context, parent: &ManagedContainer, attempts: &[Attempt]) -> Result<Ended, Failure> {
        let name = &parent.record.name;
        if cx.call.cancel.is_cancelled() {
            return Err(Failure::cancelled().known("container", name));
        }
        if let Some(failure) = attempts.iter().find_map(Attempt::not_begun) {
            return Err(failure.clone());
        }
        let winner = attempts.iter().find(|it| it.outcome() == Outcome::Won);
        let Some((winner, copy)) = winner.and_then(|it| Some((it, it.container.clone()?))) else {
            return Ok(Ended::default());
        };
        let number = winner.number;
        // What the proxy of a container has put into its files, such as its certificate, is of no use in another one.
        let stays =
            self.keep_winner == Some(true) || parent.record.proxied || parent.runtime.as_checkpoints().is_none();
        let apart = Ended { winner: Some(number), winner_container: Some(copy.clone()), ..Ended::default() };
        if stays {
            return Ok(apart);
        }
        cx.call.progress.message(format!("giving {name} the files of attempt {number}")).await;
        let jobs_ended = commands::running(cx, &parent.record).await;
        // The winner's work is not lost because of what happens to the container.
        let not_given = |failure: &Failure| {
            let message =
                format!("{name} did not get the files of attempt {number}, which {copy} has: {}", failure.message);
            cx.warn([Warning::new("files_not_given", message)]);
        };
        let Restarted { changed, started } = match take_files(cx, parent, &copy).await {
            Ok(restarted) => restarted,
            Err(failure) => {
                not_given(&failure);
                return Ok(apart);
            }
        };
        if let Err(failure) = started {
            cx.warn([Warning::new("not_started", format!("{name} did not start again: {}", failure.message))]);
        }
        match changed {
            Ok(before) => Ok(Ended { winner: Some(number), before: Some(before), jobs_ended, ..Ended::default() }),
            Err(failure) => {
                not_given(&failure);
                Ok(apart)
            }
        }
    }
}

/// Makes all copies, and then runs all attempts until one has passed or all have ended. Returns them by number; fewer if a copy
/// failed.
async fn run_all(cx: &Context, course: &Course) -> Vec<Attempt> {
    let over = cx.call.cancel.child_token();
    let own = cx.for_call(over.clone(), Progress::none());
    let mut begun = Vec::new();
    // One after the other: each needs the container for itself.
    for number in 1..=course.attempts {
        cx.call.progress.message(format!("making copy {number} of {}", course.attempts)).await;
        let attempt = Box::pin(course.begin(&own.with_own_warnings(), number)).await;
        let has_failed = attempt.container.is_none();
        begun.push(attempt);
        if has_failed {
            return begun;
        }
    }
    let run = |attempt| {
        let own = own.with_own_warnings();
        Box::pin(async move { course.run(&own, attempt).await })
    };
    let mut running: FuturesUnordered<_> = begun.into_iter().map(run).collect();
    let mut ended: Vec<Attempt> = Vec::new();
    while let Some(mut attempt) = running.next().await {
        if attempt.outcome() == Outcome::Passed && !over.is_cancelled() {
            attempt.has_won = true;
            over.cancel();
        }
        let (number, outcome) = (attempt.number, attempt.outcome().word());
        cx.call.progress.message(format!("attempt {number}: {outcome}")).await;
        ended.push(attempt);
    }
    ended.sort_by_key(|it| it.number);
    ended
}

/// Removes the copies of attempts, with the work in them. Returns what failed.
async fn remove<'a>(cx: &Context, attempts: impl Iterator<Item = &'a Attempt>) -> Vec<Failure> {
    let cx = &cx.outliving_the_call();
    let names: Vec<_> = attempts.filter_map(|it| it.container.clone()).collect();
    let removals = names.into_iter().map(|name| Box::pin(async move { remove_copy(cx, &Handle::Name(name)).await }));
    join_all(removals).await.into_iter().filter_map(Result::err).collect()
}

fn with_left(failure: Failure, left: &[Failure]) -> Failure {
    if left.is_empty() {
        return failure;
    }
    let left: Vec<_> = left.iter().map(|it| it.message.clone()).collect();
    failure.detail("left", left)
}

/// Refuses a container whose copies would share something, or would lack it.
fn may_be_copied(record: &Record) -> Result<(), Failure> {
    let unsupported = |message: String, hint: &str| {
        Err(Failure::new(Code::Unsupported, message).detail("capability", "race").hint(hint))
    };
    if matches!(record.role, Role::Service | Role::Adopted) {
        let message = format!("`{}` cannot be copied for a race: Coracle has not set it up", record.name);
        return unsupported(message, "use a container made with `create`");
    }
    if record.compose_project.is_some() {
        let message = format!("`{}` has a stack of services, which has no copies", record.name);
        return unsupported(message, "race in a container without a stack");
    }
    if record.replay.is_some() {
        let message = format!("`{}` gets its answers from a record, which its copies would not", record.name);
        return unsupported(message, "race in a container without `replay`");
    }
    let targets: Vec<_> = record.mounts.iter().map(|it| format!("`{}`", it.container)).collect();
    if !targets.is_empty() {
        let message = format!(
            "{} of `{}` is a directory of the host, which attempts would share",
            targets.join(", "),
            record.name
        );
        return unsupported(
            message,
            "create a container with `mount_cwd: false`, and clone the repository with `repos`",
        );
    }
    Ok(())
}

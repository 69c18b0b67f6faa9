//! The operations: one file each, and the table that drives every mouth.

mod cache_clear;
mod copy;
pub(crate) mod create;
mod destroy;
mod destroy_all;
mod exec;
mod exec_background;
mod exec_cancel;
mod exec_interactive_hint;
mod exec_poll;
mod images;
mod input;
mod job;
mod job_read;
mod job_wait;
mod jobs;
mod list;
mod preflight;
mod status;
mod words;

use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::{ContainerRuntime, Problem, Refused};

use crate::context::Context;
use crate::failure::Failure;
use crate::op::Entry;

/// All of them, in the order in which they are told.
pub const ALL: &[Entry] = &[
    Entry::of::<preflight::Preflight>(),
    Entry::of::<create::Create>(),
    Entry::of::<exec::Exec>(),
    Entry::of::<exec_interactive_hint::ExecInteractiveHint>(),
    Entry::of::<exec_background::ExecBackground>(),
    Entry::of::<exec_poll::ExecPoll>(),
    Entry::of::<job_wait::JobWait>(),
    Entry::of::<job_read::JobRead>(),
    Entry::of::<exec_cancel::ExecCancel>(),
    Entry::of::<jobs::Jobs>(),
    Entry::of::<list::List>(),
    Entry::of::<status::StatusOf>(),
    Entry::of::<copy::CopyIn>(),
    Entry::of::<copy::CopyOut>(),
    Entry::of::<images::Images>(),
    Entry::of::<cache_clear::CacheClear>(),
    Entry::of::<destroy::Destroy>(),
    Entry::of::<destroy_all::DestroyAll>(),
];

/// What a session leaves behind when its connection ends: containers that are to outlive it stay (containers.md 14.9).
pub(crate) async fn end_session(cx: &Context) {
    let mine = |it: &coracle_lifecycle::Listed| it.record.session == cx.session.as_str();
    match destroy_all::all(cx, mine, false).await {
        Ok(_) => tracing::debug!(session = %cx.session, "the session ended"),
        Err(failure) => tracing::warn!(session = %cx.session, "the session left something: {}", failure.message),
    }
}

/// The engine of a verdict of preflight that still holds.
pub(crate) fn kept_engine(cx: &Context) -> Option<Arc<dyn ContainerRuntime>> {
    preflight::kept(cx).map(|it| it.runtime)
}

/// Root inside is the person's to grant.
pub(crate) fn root_refused(rule: &'static str, message: &str) -> Failure {
    let setting = Some("security.allow_root");
    Refused { problems: vec![Problem { rule, setting, value: "root".into(), message: message.into() }] }.into()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

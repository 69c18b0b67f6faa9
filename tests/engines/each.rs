//! A check on every engine that its test is for.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::task::Poll;

use coracle_types::EngineKind;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::person::{self, EMBEDDED_ROOTLESS, OF_PERSON, ROOTLESS, is_root};
use super::ran::{Outcome, note, skip};
use super::scripted::CONTAINER;
use super::{Case, CaseCheck, case, tier, variable};

type Panic = Box<dyn Any + Send>;

/// Runs a check on every engine, and removes what it created even if it panics. One engine's failure does not prevent the
/// others from being checked.
///
/// Podman without root is skipped, and counted, unless nothing else is named: what is below the tool does the same with
/// both Podmans, and the tool's own tests run on each. The embedded engine without root is another one.
pub(crate) async fn on_every_engine(check: impl AsyncFn(&Case)) {
    on_engines(person::is_alone(), None, &check).await;
}

/// As [`on_every_engine`], and on Podman without root: for checks that depend on the owner.
pub(crate) async fn on_every_engine_and_rootless(check: impl AsyncFn(&Case)) {
    on_engines(true, None, &check).await;
}

/// Like [`on_every_engine`], only on the fake and that engine, for features that the others do not have.
pub(crate) async fn on_one_engine(engine: EngineKind, check: impl AsyncFn(&Case)) {
    on_engines(false, Some(engine), &check).await;
}

async fn on_engines(rootless: bool, only: Option<EngineKind>, check: CaseCheck<'_>) {
    let test = coracle_skips::test_name();
    let (part, named) = (tier::Part::of_run(), names());
    let (mut engines, mut failure) = (tier::engines_of(&test, named.clone(), part, only), None);
    for engine in OF_PERSON.into_iter().filter(|_| is_root()) {
        if !engines.iter().any(|it| it == engine) {
            continue;
        }
        engines.retain(|it| it != engine);
        if rootless || (engine == EMBEDDED_ROOTLESS && only.is_none()) {
            failure = failure.or(caught(async { person::runs_this_test(engine) }).await.err());
        } else {
            skip(engine);
        }
    }
    // Engines wait for their programs and not for each other.
    let mut outcomes = join_all(engines.iter().map(|it| on_engine(&test, it, check))).await;
    let is_left_out = |it: &[Result<Outcome, Panic>]| it.iter().all(|it| matches!(it, Ok(Outcome::LeftOut)));
    let others = tier::stand_ins(&test, &named, part).into_iter().filter(|it| !engines.contains(it));
    for other in others.filter(|_| only.is_none()) {
        if is_left_out(&outcomes) {
            outcomes.push(on_engine(&test, &other, check).await);
        }
    }
    if part.is_some() && is_left_out(&outcomes) {
        match only {
            Some(engine) => skip(&format!("needs {engine}")),
            None => skip(coracle_skips::NEEDS_OTHER_ENGINE),
        }
    }
    if let Some(panic) = outcomes.into_iter().filter_map(Result::err).next().or(failure) {
        resume_unwind(panic);
    }
}

/// The result of the check on that engine, or why it failed.
pub(super) async fn on_engine(test: &str, engine: &str, check: CaseCheck<'_>) -> Result<Outcome, Panic> {
    let (begun, mut outcome) = (Instant::now(), Outcome::Failed);
    let ended = caught(async {
        let case = case(engine).await.unwrap_or_else(|err| panic!("{err}"));
        outcome = case.tries(check).await;
    })
    .await;
    if ended.is_err() {
        eprintln!("the check failed on {engine}");
    }
    note(test, engine, outcome, begun.elapsed());
    ended.map(|()| outcome)
}

impl Case {
    /// Runs a check, and removes what it created even if it panics.
    pub(super) async fn tries(&self, check: CaseCheck<'_>) -> Outcome {
        let checked = caught(check.on(self)).await;
        if checked.is_err() {
            self.makes_more();
        }
        self.clean_up().await;
        if let Err(panic) = checked {
            resume_unwind(panic);
        }
        if self.left_out.load(Ordering::Relaxed) { Outcome::LeftOut } else { Outcome::Passed }
    }
}

/// On the heap: a check holds what a whole session does, and the stack of a thread would hold it once for each function
/// that passes it on.
pub(crate) async fn caught(check: impl Future<Output = ()>) -> std::thread::Result<()> {
    let mut check = Box::pin(check);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| check.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

fn names() -> Vec<String> {
    let selected = variable("CORACLE_ENGINES").unwrap_or_default();
    let named = selected.split(',').map(str::trim).filter(|it| !it.is_empty() && *it != "fake");
    let fake = (!person::is_second_run()).then_some("fake");
    let on_mac = variable("CORACLE_TEST_ENGINE").filter(|it| it == CONTAINER);
    fake.into_iter().chain(named).map(str::to_owned).chain(on_mac).collect()
}

/// Whether a test runs on an engine other than the fake.
pub(crate) fn has_real_engine() -> bool {
    names().iter().any(|it| it != "fake" && it != CONTAINER)
}

/// Whether a test meets Podman without root.
pub(crate) fn has_rootless() -> bool {
    !is_root() || names().iter().any(|it| it == ROOTLESS)
}

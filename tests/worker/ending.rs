//! Runs that end before their end.

use std::time::Duration;

use coracle_sandbox::Code;
use coracle_sandbox::driver::{AgenticRequest, Event, Events};
use coracle_sandbox::protocol::RunLimits;
use coracle_types::{Command, ContainerPath, Exec, Ids};
use futures_util::StreamExt;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::{Bench, ask, with_worker};
use crate::engines::WITHOUT_WAITING;
use crate::servers::model::{call, calls, says};

/// Kills the worker.
pub(super) const KILL: &str = "for it in /proc/[0-9]*; do case $(tr '\\0' ' ' < $it/cmdline 2>/dev/null) in \
    /.coracle/worker*) kill -9 ${it#/proc/};; esac; done";

fn limited(limits: RunLimits) -> AgenticRequest {
    AgenticRequest { limits: Some(limits), ..ask("x") }
}

/// A number of seconds that only programs of this test sleep, since programs of the fake run on the host.
fn seconds(bench: &Bench<'_>) -> u32 {
    100_000 + u32::from(bench.model.port())
}

/// A program that keeps running, with child processes.
pub(super) fn sleeps(bench: &Bench<'_>) -> serde_json::Value {
    let seconds = seconds(bench);
    json!({ "command": ["sh", "-c", format!("sleep {seconds} & sleep {seconds}")], "timeout_seconds": 120 })
}

pub(super) async fn shell(bench: &Bench<'_>, script: &str) -> String {
    let exec = Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root());
    bench.running.ran(exec).await.stdout.text()
}

/// The number of running programs of [`sleeps`].
pub(super) async fn left(bench: &Bench<'_>) -> String {
    let all = shell(bench, "for it in /proc/[0-9]*; do tr '\\0' ' ' < $it/cmdline; echo; done 2>/dev/null").await;
    let sleeps = format!("sleep {} ", seconds(bench));
    let left: Vec<&str> = all.lines().filter(|it| it.starts_with(&sleeps)).collect();
    left.join("\n")
}

/// A run that has started a program of [`sleeps`].
pub(super) async fn begins_a_program(bench: &Bench<'_>, request: AgenticRequest) -> Events {
    bench.model.then([calls([call("shell_execute", sleeps(bench))])]);
    let mut events = bench.driver.run_agentic(request);
    while !matches!(events.next().await.expect("the run goes on").unwrap(), Event::ToolCall { .. }) {}
    until_left(bench, 2).await;
    events
}

/// Waits until this number of programs of [`sleeps`] runs.
pub(super) async fn until_left(bench: &Bench<'_>, programs: usize) {
    let counted = async {
        while left(bench).await.lines().count() != programs {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(12), counted).await.expect("so many programs");
}

#[tokio::test]
async fn x50_limits_end_a_run() {
    with_worker(async |bench| {
        bench.model.otherwise(calls([call("ls", json!({}))]));
        let failure = bench.fails(limited(RunLimits { max_turns: Some(3), ..RunLimits::default() })).await;
        assert_eq!((failure.code, failure.message.as_str()), (Code::MaxTurns, "Stopped after 3 turns."));
        assert_eq!(bench.model.requests().len(), 3);
        let failure = bench.fails(limited(RunLimits { max_total_tokens: Some(30), ..RunLimits::default() })).await;
        assert_eq!(failure.code, Code::BudgetExhausted, "{failure}");
        assert_eq!(bench.driver.usage().unwrap().num_turns, Some(2));
        bench.model.then([calls([call("shell_execute", sleeps(bench))])]);
        let begun = Instant::now();
        let failure = bench.fails(limited(RunLimits { wall_seconds: Some(1), ..RunLimits::default() })).await;
        assert_eq!(failure.code, Code::WallLimit, "{failure}");
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
        assert_eq!((left(bench).await.as_str(), bench.workers()), ("", 1));
    })
    .await;
}

#[tokio::test]
async fn x50_x68_a_disconnect_ends_the_run_with_its_programs_and_the_next_run_is_clean() {
    with_worker(async |bench| {
        let events = begins_a_program(bench, ask("x")).await;
        let begun = Instant::now();
        drop(events);
        bench.model.then([says("clean")]);
        let next = bench.runs(ask("y")).await;
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
        assert!(matches!(next.as_slice(), [Event::Result { content, .. }] if content == "clean"), "{next:?}");
        assert_eq!(left(bench).await, "");
    })
    .await;
}

#[tokio::test]
async fn x67_a_killed_worker_is_reported_and_another_does_the_next_run() {
    with_worker(async |bench| {
        if !bench.running.case.is_real() {
            return bench.running.case.left_out(); // it is part of this process
        }
        bench.model.then([calls([call("shell_execute", sleeps(bench))])]);
        let mut events = bench.driver.run_agentic(ask("x"));
        let mut failure = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::ToolCall { .. }) => {
                    shell(bench, KILL).await;
                }
                Ok(_) => {}
                Err(err) => failure = Some(err),
            }
        }
        let failure = failure.unwrap();
        assert_eq!((failure.code, &failure.details["may_have_changed"]), (Code::WorkerDied, &json!(true)));
        bench.model.then([says("clean")]);
        let next = bench.runs(ask("y")).await;
        assert!(matches!(next.as_slice(), [Event::Result { content, .. }] if content == "clean"), "{next:?}");
        assert_eq!(bench.workers(), 2);
        // Its connection is lost, so its programs are ended within 5 s.
        until_left(bench, 0).await;
    })
    .await;
}

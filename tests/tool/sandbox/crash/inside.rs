//! The container is killed, or the worker in it.

use serde_json::json;

use super::{Begun, SOON, WORK, kill, with_shared};
use crate::engines::git;
use crate::servers::model::{call, calls, held, says};
use crate::tool::eventually;
use crate::tool::sandbox::Bench;
use crate::tool::sandbox::keyless::{Process, processes};

/// The container is killed while a command has git inside do something: how that fails.
async fn container_killed_at(bench: &Bench<'_>, at: &str, words: &[&str]) -> String {
    bench.stops_git(at).await;
    let command = bench.begins_until_git_stands(words).await;
    bench.kills_container().await;
    command.fails().await
}

async fn worker(bench: &Bench<'_>) -> u32 {
    processes(bench.pid1().await).into_iter().find(Process::is_worker).expect("a worker runs").pid
}

#[tokio::test]
async fn a_container_killed_at_any_point_is_reported_and_replaced_with_its_work() {
    with_shared(async |bench| {
        bench.at_work("first").await;
        for (number, at) in ["index-pack", "worktree add", "reset --hard"].into_iter().enumerate() {
            let name = bench.id(&format!("more-{number}"));
            bench.server.commit("web", &name, &[("more", &format!("{name}\n"))]).await;
            let code = container_killed_at(bench, at, &["create", &bench.url(), "--workflow", &name]).await;
            assert_eq!(code, "sandbox_lost", "{at}");
            bench.goes_on("first").await;
            bench.at_work(&name).await;
            bench.goes_on(&name).await;
        }
        assert_eq!(container_killed_at(bench, "add -A", &["diff", "first"]).await, "sandbox_lost");
        bench.goes_on("first").await;
        let to = bench.tool.work().join("checkout");
        git(&bench.tool.work(), &["clone", "--quiet", "--", &bench.url(), "checkout"], "").await;
        let apply = ["apply", "first", "--to", to.to_str().unwrap()];
        assert_eq!(container_killed_at(bench, "add -A", &apply).await, "sandbox_lost");
        assert_eq!(git(&to, &["status", "--porcelain"], "").await, "", "nothing of it is there");
        bench.goes_on("first").await;
        bench.inside("10002:10002", "cd /workspace/worktrees/first && HOME=/tmp git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x").await;
        assert_eq!(container_killed_at(bench, "bundle create", &["push", "first"]).await, "sandbox_lost");
        bench.goes_on("first").await;
        for at in ["commit-tree", "bundle create"] {
            let code = container_killed_at(bench, at, &["remove", "first"]).await;
            assert!(["sandbox_lost", "save_failed"].contains(&code.as_str()), "{at}: {code}");
            bench.goes_on("first").await;
        }
        let diff = bench.worktree(&["diff", "first"]).await;
        assert!(diff["patch"].as_str().unwrap().contains(WORK), "{diff:#}");
        bench.is_removed_with_its_work("first").await;
    })
    .await;
}

/// A process is killed in a model call, in a tool call and between two turns; each run reports why it ended, and the
/// next one is clean.
async fn killed_in_runs(bench: &Bench<'_>, codes: &[&str], kill: impl AsyncFn(&Bench<'_>)) {
    bench.at_work("run").await;
    let seconds = 200_000 + u32::from(bench.model.port());
    let sleeps = json!({ "command": ["sleep", seconds.to_string()], "timeout_seconds": 600 });
    let fine = || calls([call("shell_execute", json!({ "command": ["true"] }))]);
    let reported = async |run: Begun, when: &str| {
        let code = run.fails().await;
        assert!(codes.contains(&code.as_str()), "{when}: {code}");
        bench.goes_on("run").await;
    };

    let requests = bench.model.requests().len();
    bench.model.then([held(says("never")).0]);
    let run = bench.begins_run("run");
    bench.model_is_called(requests).await;
    kill(bench).await;
    reported(run, "in a model call").await;

    bench.model.then([calls([call("shell_execute", sleeps)])]);
    let run = bench.begins_run("run");
    eventually("the program runs", SOON, async || bench.sleeps(seconds).await).await;
    kill(bench).await;
    reported(run, "in a tool call").await;
    eventually("it runs no more", SOON, async || !bench.sleeps(seconds).await).await;

    let requests = bench.model.requests().len();
    bench.model.then([fine(), held(says("never")).0]);
    let run = bench.begins_run("run");
    bench.model_is_called(requests + 1).await;
    kill(bench).await;
    reported(run, "between two turns").await;

    bench.model.then([fine(), says("clean")]);
    let (ended_well, events) = bench.works("run", "go on").await;
    assert!(ended_well, "{events:#?}");
    assert_eq!(events.last().unwrap()["content"], "clean");
    bench.is_removed_with_its_work("run").await;
}

#[tokio::test]
async fn a_worker_killed_at_any_point_of_a_run_is_reported_and_the_next_run_is_clean() {
    with_shared(async |bench| {
        killed_in_runs(bench, &["worker_died"], async |bench: &Bench<'_>| kill(worker(bench).await)).await;
    })
    .await;
}

#[tokio::test]
async fn a_container_killed_at_any_point_of_a_run_is_reported_and_the_next_run_is_clean() {
    with_shared(async |bench| {
        killed_in_runs(bench, &["worker_died", "sandbox_lost"], async |bench: &Bench<'_>| {
            bench.kills_container().await;
        })
        .await;
    })
    .await;
}

//! Leftovers of a killed process, and concurrent calls.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use coracle_runtime::LabelFilter;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Tool, with_engine, with_rootful_engine};
use crate::engines::ran;

/// Unique for one test, so that leftovers are distinct from those of other tests and of earlier runs that were killed.
fn namespace() -> String {
    format!("coracle-crash-{}", coracle_types::random_hex::<4>())
}

/// The directory of records of a namespace.
fn state(tool: &Tool<'_>, namespace: &str) -> PathBuf {
    tool.state().join("ns").join(namespace)
}

/// Everything of this state directory that still exists in an engine or on disk.
async fn left(tool: &Tool<'_>, namespace: &str) -> Vec<String> {
    let mut left = Vec::new();
    for dir in ["containers", "link"] {
        let entries = std::fs::read_dir(state(tool, namespace).join(dir)).unwrap();
        left.extend(entries.map(|it| it.unwrap().path().display().to_string()));
    }
    left.extend(tool.case.runtime.list(&tool.case.mine()).await.unwrap().into_iter().map(|it| it.name));
    let networks =
        tool.case.runtime.list_networks(&LabelFilter(vec![(format!("{namespace}.managed"), None)])).await.unwrap();
    left.extend(networks.into_iter().map(|it| it.name));
    left
}

/// Repeats a call until everything is removed: each call cleans up after others.
async fn nothing_is_left(tool: &Tool<'_>, namespace: &str, heal: Value) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = tool.call(heal.clone()).await;
        let left = left(tool, namespace).await;
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left: {left:#?}, after {answer:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn s30_a_create_killed_anywhere_is_healed_by_the_next_call() {
    let namespace = namespace();
    with_engine(&format!("label_namespace = \"{namespace}\"\n"), async |tool| {
        // Once, for what is made for all containers together.
        let warm = tool.created(json!({})).await;
        tool.call(json!({ "operation": "destroy", "container": warm })).await;
        let begun_create = std::time::Instant::now();
        let again = tool.created(json!({})).await;
        let whole = begun_create.elapsed();
        tool.call(json!({ "operation": "destroy", "container": again })).await;
        for point in 0..12u32 {
            let name = format!("killed-{}-{point}", tool.case.label().1);
            let call = tool.create_call(json!({ "name": name })).to_string();
            let mut child = tool.command(["call", &call]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            tokio::time::sleep(whole * point / 11).await;
            let _ = child.kill().await;
            let listed = tool.call(json!({ "operation": "list" })).await;
            let known = listed["containers"].to_string().contains(&name);
            let there = !tool.engine(&["inspect", &name]).await.0;
            assert!(known || there, "point {point}: the engine has it and `list` does not: {listed:#}");
            let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
            assert!(destroyed["success"] == true || destroyed["code"] == "not_found", "point {point}: {destroyed:#}");
        }
        // A container that the engine was creating when its caller was killed appears late, and the next call removes it.
        nothing_is_left(tool, &namespace, json!({ "operation": "destroy_all", "confirm": true })).await;
        ran("s30", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn two_processes_that_make_twenty_at_once_lose_none() {
    with_engine("", async |tool| {
        let mut makers = JoinSet::new();
        for process in 0..2 {
            let calls: Vec<_> = (0..10).map(|_| tool.create_call(json!({ "persistent": true })).to_string()).collect();
            let mut command = tool.command(["mcp", "--session", &format!("maker-{process}")]);
            makers.spawn(async move { super::mcp::calls(&mut command, &calls).await });
        }
        let answers: Vec<_> = makers.join_all().await.into_iter().flatten().collect();
        assert!(answers.iter().all(|it| it["success"] == true), "{answers:#?}");
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(listed["count"], 20, "{listed:#}");
        assert_eq!(tool.records().len(), 20);
        assert_eq!(tool.case.runtime.list(&tool.case.mine()).await.unwrap().len(), 20);
    })
    .await;
}

/// The duration of an undisturbed call.
async fn takes(tool: &Tool<'_>, call: Value) -> Duration {
    let begun = Instant::now();
    let answer = tool.call(call).await;
    assert_eq!(answer["success"], true, "{answer:#}");
    begun.elapsed()
}

/// Kills the program a while after it got a call.
async fn killed(tool: &Tool<'_>, call: &Value, after: Duration) {
    let mut command = tool.command(["call", &call.to_string()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    tokio::time::sleep(after).await;
    let _ = child.kill().await;
}

const POINTS: u32 = 7;

#[tokio::test]
async fn a_destroy_killed_anywhere_is_finished_by_the_next_and_loses_no_work() {
    let namespace = namespace();
    with_rootful_engine(&format!("label_namespace = \"{namespace}\"\n"), async |tool| {
        let with_work = async || {
            let name = tool.created(json!({})).await;
            tool.prints(&name, "echo it > /workspace/work").await;
            name
        };
        let destroy = |name: &str| json!({ "operation": "destroy", "container": name });
        let whole = takes(tool, destroy(&with_work().await)).await;
        for point in 0..POINTS {
            let name = with_work().await;
            killed(tool, &destroy(&name), whole * point / (POINTS - 1)).await;
            let again = tool.call(destroy(&name)).await;
            assert_eq!(again["success"], true, "point {point}: {again:#}");
            let saved: Value =
                serde_json::from_slice(&tool.run(["saved", "list", "--json"], b"").await.stdout).unwrap();
            assert!(saved.to_string().contains(&name), "point {point}: {saved:#}");
        }
        nothing_is_left(tool, &namespace, json!({ "operation": "list" })).await;
    })
    .await;
}

#[tokio::test]
async fn a_snapshot_killed_anywhere_is_whole_or_not_there() {
    let namespace = namespace();
    with_rootful_engine(&format!("label_namespace = \"{namespace}\"\n"), async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, "head -c 30000000 /dev/urandom > /big").await;
        let snapshot = |snapshot: &str| json!({ "operation": "snapshot", "container": name, "name": snapshot });
        let whole = takes(tool, snapshot("whole")).await;
        for point in 0..POINTS {
            killed(tool, &snapshot(&format!("killed-{point}")), whole * point / (POINTS - 1)).await;
            // The engine's program outlives its caller, and has the container paused until it is done.
            super::eventually("the container runs", Duration::from_secs(30), async || {
                tool.exec(&name, "wc -c < /big").await["stdout"] == "30000000\n"
            })
            .await;
        }
        let listed = tool.call(json!({ "operation": "snapshots" })).await;
        for it in listed["snapshots"].as_array().unwrap() {
            let made = tool.call(json!({ "operation": "restore", "snapshot": it["name"], "mount_cwd": false })).await;
            assert_eq!(made["success"], true, "{made:#}");
            let copy = made["container"].as_str().unwrap();
            assert_eq!(tool.prints(copy, "wc -c < /big").await, "30000000");
            tool.destroy(copy).await;
        }
        tool.destroy(&name).await;
        let prune = json!({ "operation": "prune", "dry_run": false, "kinds": ["snapshots", "images"] });
        super::eventually("no image is left", Duration::from_secs(30), async || {
            tool.call(prune.clone()).await;
            let kind = LabelFilter(vec![(format!("{namespace}.kind"), None)]);
            tool.case.runtime.list_images(&kind).await.unwrap().is_empty()
        })
        .await;
    })
    .await;
}

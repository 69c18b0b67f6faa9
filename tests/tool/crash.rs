//! What a killed process leaves, and what many at once do (containers.md 14.8).

use std::process::Stdio;
use std::time::Duration;

use coracle_runtime::{LabelFilter, NetworkAct};
use serde_json::json;
use tokio::task::JoinSet;

use super::{Tool, with_engine};
use crate::engines::ran;

/// Of its own, so that what is left can be told from what other tests make.
const NAMESPACE: &str = "coracle-crash";

/// Everything of this state directory that an engine or the disk still holds.
async fn left(tool: &Tool<'_>) -> Vec<String> {
    let mut left: Vec<String> = tool.records().iter().map(|it| it.display().to_string()).collect();
    left.extend(tool.case.runtime.list(&tool.case.mine()).await.unwrap().into_iter().map(|it| it.name));
    let networks = tool
        .case
        .runtime
        .network(NetworkAct::List(LabelFilter(vec![(format!("{NAMESPACE}.managed"), None)])))
        .await
        .unwrap();
    left.extend(networks.into_iter().map(|it| it.name));
    left
}

#[tokio::test]
async fn s30_a_create_killed_anywhere_is_healed_by_the_next_call() {
    with_engine(&format!("label_namespace = \"{NAMESPACE}\"\n"), async |tool| {
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
        // What the engine was still making when its caller was killed appears late, and goes with the next call.
        super::eventually("nothing is left", Duration::from_secs(20), async || {
            tool.call(json!({ "operation": "destroy_all", "confirm": true })).await;
            left(tool).await.is_empty()
        })
        .await;
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

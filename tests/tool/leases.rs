//! Containers whose session has ended unexpectedly.

use std::time::Duration;

use serde_json::{Value, json};

use super::mcp::Client;
use super::{Tool, eventually, with_engine, with_rootful_engine};
use crate::engines::ran;

/// The clean-up of every `create`, even of one that creates nothing.
async fn look(tool: &Tool<'_>) {
    let call = tool.create_call(json!({ "image": "coracle-test/nowhere", "pull": "never" }));
    assert_eq!(tool.call(call).await["code"], "image_not_found");
}

async fn names(tool: &Tool<'_>) -> Vec<String> {
    let listed = tool.call(json!({ "operation": "list" })).await;
    let rows = listed["containers"].as_array().unwrap();
    rows.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

/// A server and its containers, one for each of the calls.
async fn serving(tool: &Tool<'_>, calls: &[Value]) -> (Client, Vec<String>) {
    let mut client = Client::start(&mut tool.command(["mcp"])).await;
    let mut made = Vec::new();
    for (id, more) in calls.iter().enumerate() {
        client.call(id, &tool.create_call(more.clone())).await;
        let answer = client.answer().await["result"]["structuredContent"].take();
        assert_eq!(answer["expires_at"].is_null(), answer["persistent"] == true, "{answer:#}");
        made.push(answer["container"].as_str().unwrap().to_owned());
    }
    (client, made)
}

#[tokio::test]
async fn containers_of_a_server_that_was_killed_go_after_their_grace_and_those_in_use_do_not() {
    with_rootful_engine("[lifecycle]\norphan_grace = 1\n", async |tool| {
        let (mut client, made) = serving(tool, &[json!({}), json!({ "persistent": true }), json!({}), json!({})]).await;
        let [idle, persistent, working, entered] = &made[..] else { panic!("{made:?}") };
        let job = json!({ "operation": "exec_background", "container": working, "command": "sleep 600" });
        assert_eq!(tool.call(job).await["success"], true);
        let engine = tool.case.engine().as_str();
        let mut shell = crate::engines::engine_program(engine);
        let mut shell = shell.args(["exec", entered, "sleep", "600"]).kill_on_drop(true).spawn().unwrap();
        client.child.kill().await.unwrap();
        eventually("the idle one is gone", Duration::from_secs(60), async || {
            look(tool).await;
            !names(tool).await.contains(idle)
        })
        .await;
        for retained in [persistent, working, entered] {
            assert!(names(tool).await.contains(retained), "{retained}");
        }
        let _ = shell.kill().await;
    })
    .await;
}

#[tokio::test]
async fn s80_a_container_with_a_running_job_outlives_its_session_by_default() {
    for keep in [true, false] {
        with_engine(&format!("[lifecycle]\nkeep_jobs = {keep}\n"), async |tool| {
            let (mut client, made) = serving(tool, &[json!({}), json!({})]).await;
            let job = json!({ "operation": "exec_background", "container": made[0], "command": "sleep 600" });
            client.call(9, &job).await;
            client.answer().await;
            drop(client.stdin);
            let ended = tokio::time::timeout(Duration::from_secs(30), client.child.wait()).await;
            assert!(ended.unwrap().unwrap().success());
            let expected = if keep { vec![made[0].clone()] } else { Vec::new() };
            assert_eq!(names(tool).await, expected);
            ran("s80", tool.case.engine());
        })
        .await;
    }
}

#[tokio::test]
async fn jobs_keep_a_container_of_an_ended_session_for_a_time_and_no_longer() {
    with_engine("[lifecycle]\norphan_grace = 1\nkeep_jobs_for = 2\n", async |tool| {
        let (mut client, made) = serving(tool, &[json!({ "mount_cwd": false })]).await;
        let job =
            json!({ "operation": "exec_background", "container": made[0], "command": "echo kept > a; sleep 600" });
        client.call(9, &job).await;
        client.answer().await;
        client.end().await;
        assert_eq!(names(tool).await, made, "its job keeps it");
        eventually("its time is over", Duration::from_secs(60), async || {
            look(tool).await;
            names(tool).await.is_empty()
        })
        .await;
        let saved = tool.run(["saved", "list", "--json"], b"").await;
        let saved = String::from_utf8_lossy(&saved.stdout).into_owned();
        assert!(saved.contains(&made[0]), "its work is saved: {saved}");
    })
    .await;
}

#[tokio::test]
async fn unused_containers_are_removed_and_records_of_removed_ones_forgotten() {
    with_engine("[lifecycle]\nidle = 2\norphan_grace = 1\ngone_for = 2\n", async |tool| {
        let (idle, removed) = (tool.created(json!({})).await, tool.created(json!({ "persistent": true })).await);
        let persistent = tool.created(json!({ "persistent": true })).await;
        assert!(tool.engine(&["rm", "--force", &removed]).await.0);
        let listed = tool.call(json!({ "operation": "list" })).await;
        let row = listed["containers"].as_array().unwrap().iter().find(|it| it["name"] == removed.as_str()).unwrap();
        assert_eq!(row["status"], "missing");
        eventually("both are gone", Duration::from_secs(60), async || {
            look(tool).await;
            let names = names(tool).await;
            !names.contains(&idle) && !names.contains(&removed)
        })
        .await;
        assert_eq!(names(tool).await, [persistent]);
    })
    .await;
}

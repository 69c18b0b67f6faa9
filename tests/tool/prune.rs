//! `prune`.

use serde_json::{Value, json};

use super::mcp::Client;
use super::{Tool, with_engine, with_tool};
use crate::engines::{Lack, ran};

async fn prune(tool: &Tool<'_>, more: Value) -> Value {
    let mut call = json!({ "operation": "prune", "kinds": ["containers", "networks", "records", "temporary"] });
    super::merge(call.as_object_mut().unwrap(), more);
    tool.call(call).await
}

fn named<'a>(answer: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    answer[list].as_array().unwrap().iter().find(|it| it["name"] == name)
}

#[tokio::test]
async fn s79_prune_lists_with_reasons_and_removes_only_on_request() {
    with_tool("", async |tool| {
        if tool.case.lacks(Lack::NamedNetworks) {
            return;
        }
        let (used, persistent) = (tool.created(json!({})).await, tool.created(json!({ "persistent": true })).await);
        let network = tool.case.network_name("free").to_string();
        tool.call(json!({ "operation": "create_network", "name": network })).await;
        let reported = prune(tool, json!({})).await;
        assert_eq!((&reported["success"], &reported["dry_run"]), (&true.into(), &true.into()), "{reported:#}");
        assert_eq!(named(&reported, "kept", &used).unwrap()["reason"], "it was used not long ago");
        assert_eq!(named(&reported, "kept", &persistent).unwrap()["reason"], "it is persistent");
        let item = named(&reported, "items", &network).unwrap();
        assert_eq!((&item["kind"], &item["removed"]), (&"networks".into(), &false.into()), "{reported:#}");
        assert_eq!(tool.call(json!({ "operation": "networks" })).await["count"], 1);
        let young = prune(tool, json!({ "dry_run": false, "older_than": "1h" })).await;
        assert_eq!(named(&young, "kept", &network).unwrap()["reason"], "it is younger than 1h", "{young:#}");
        let gone = prune(tool, json!({ "dry_run": false })).await;
        assert_eq!(named(&gone, "items", &network).unwrap()["removed"], true, "{gone:#}");
        assert_eq!(tool.call(json!({ "operation": "networks" })).await["count"], 0);
        assert_eq!(tool.call(json!({ "operation": "list" })).await["count"], 2);
        ran("s79", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn leftovers_of_a_dead_server_and_orphaned_records_and_directories_are_pruned() {
    with_engine("", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        client.call(1, &tool.create_call(json!({}))).await;
        let orphan = client.answer().await["result"]["structuredContent"]["container"].take();
        client.child.kill().await.unwrap();
        let removed = tool.created(json!({ "persistent": true })).await;
        assert!(tool.engine(&["rm", "--force", &removed]).await.0);
        let trash = tool.state().join("link/.trash-0123456789abcdef");
        std::fs::create_dir_all(trash.join("a/b")).unwrap();
        let answer = prune(tool, json!({ "dry_run": false })).await;
        for (name, kind) in [
            (orphan.as_str().unwrap(), "containers"),
            (&removed, "records"),
            ("link/.trash-0123456789abcdef", "temporary"),
        ] {
            let item = named(&answer, "items", name).unwrap_or_else(|| panic!("{name}: {answer:#}"));
            assert_eq!((&item["kind"], &item["removed"]), (&kind.into(), &true.into()), "{answer:#}");
        }
        assert!(!trash.exists());
        assert_eq!(tool.call(json!({ "operation": "list" })).await["count"], 0);
    })
    .await;
}

#[tokio::test]
async fn a_user_prunes_containers_with_only_jobs_left_by_the_time_of_their_last_call() {
    with_engine("", async |tool| {
        let (working, persistent) = (tool.created(json!({})).await, tool.created(json!({ "persistent": true })).await);
        for name in [&working, &persistent] {
            let job = json!({ "operation": "exec_background", "container": name, "command": "sleep 600" });
            assert_eq!(tool.call(job).await["success"], true);
        }
        let stays = prune(tool, json!({ "dry_run": false, "idle_for": "1h" })).await;
        assert_eq!(named(&stays, "kept", &working).unwrap()["reason"], "it was used not long ago", "{stays:#}");
        let listed = prune(tool, json!({ "idle_for": 0 })).await;
        assert_eq!(named(&listed, "items", &working).unwrap()["removed"], false, "{listed:#}");
        assert_eq!(named(&listed, "kept", &persistent).unwrap()["reason"], "it is persistent", "{listed:#}");
        let gone = prune(tool, json!({ "dry_run": false, "idle_for": 0 })).await;
        assert_eq!(named(&gone, "items", &working).unwrap()["removed"], true, "{gone:#}");
        assert_eq!(tool.call(json!({ "operation": "list" })).await["count"], 1);
    })
    .await;
}

//! Commands only for the user: `start`, `adopt`, `audit verify`.

use serde_json::{Value, json};

use super::{Tool, with_rootful_engine};
use crate::engines::IMAGE;

/// A command line with `--json`: its answer, and its exit status.
pub(super) async fn says(tool: &Tool<'_>, words: &[&str]) -> (Value, Option<i32>) {
    let output = tool.run(words.iter().chain(&["--json"]), b"").await;
    let answer = serde_json::from_slice(&output.stdout);
    let answer = answer.unwrap_or_else(|err| panic!("{err}: {}", String::from_utf8_lossy(&output.stderr)));
    (answer, output.status.code())
}

/// A container that another program created.
async fn stranger(tool: &Tool<'_>, name: &str, more: &[&str]) -> String {
    let (key, value) = tool.case.label();
    let (own, name) = (format!("--label={key}={value}"), format!("--name={name}"));
    let words = ["run", "--detach", "--network=none", &own, &name];
    let (good, id) = tool.engine(&[&words[..], more, &[IMAGE, "sleep", "1000"]].concat()).await;
    assert!(good, "{id}");
    id
}

#[tokio::test]
async fn a_stopped_container_is_started_only_by_the_user() {
    with_rootful_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        assert!(tool.engine(&["kill", &name]).await.0);
        assert_eq!(tool.exec(&name, "true").await["code"], "not_running");
        assert_eq!(tool.call(json!({ "operation": "start", "container": name })).await["code"], "unknown_operation");
        let (started, status) = says(tool, &["start", &name]).await;
        assert_eq!((&started["started"], status), (&true.into(), Some(0)), "{started:#}");
        assert_eq!(says(tool, &["start", &name]).await.0["started"], false);
        assert_eq!(tool.prints(&name, "echo here").await, "here");
        let (unknown, status) = says(tool, &["start", "nosuch"]).await;
        assert_eq!((&unknown["code"], status), (&"not_found".into(), Some(1)));
    })
    .await;
}

#[tokio::test]
async fn a_strangers_container_is_used_when_it_is_adopted_and_outlives_that() {
    with_rootful_engine("", async |tool| {
        let name = tool.case.name("foreign").to_string();
        let id = stranger(tool, &name, &["--user=1000:1000"]).await;
        assert_eq!(tool.exec(&name, "true").await["code"], "not_managed");
        assert_eq!(tool.call(json!({ "operation": "adopt", "container": name })).await["code"], "unknown_operation");
        let (adopted, status) = says(tool, &["adopt", &name]).await;
        assert_eq!((&adopted["id"], status), (&id.clone().into(), Some(0)), "{adopted:#}");
        let (again, status) = says(tool, &["adopt", &name]).await;
        assert_eq!((&again["code"], status), (&"name_taken".into(), Some(1)), "{again:#}");
        assert_eq!(tool.prints(&name, "id -u").await, "1000");
        let job = json!({ "operation": "exec_background", "container": name, "command": "true" });
        assert_eq!(tool.call(job).await["details"]["capability"], "guest");
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(
            (&listed["containers"][0]["name"], &listed["containers"][0]["running"]),
            (&name.clone().into(), &true.into())
        );
        // Whatever an agent sends, only the user can remove it.
        let destroy = json!({ "operation": "destroy", "container": name, "force": true });
        let forgotten = tool.call(destroy).await;
        assert!(forgotten["detail"].as_str().unwrap().starts_with("Forgotten"), "{forgotten:#}");
        assert_eq!(tool.engine(&["inspect", "--format={{.State.Running}}", &id]).await.1, "true");
        assert_eq!(tool.exec(&name, "true").await["code"], "not_managed");
        assert_eq!(says(tool, &["adopt", &id[..12]]).await.1, Some(0));
        let all = json!({ "operation": "destroy_all", "confirm": true, "scope": "all", "include_persistent": true });
        tool.call(all).await;
        assert_eq!(tool.engine(&["inspect", "--format={{.State.Running}}", &id]).await.1, "true");
        says(tool, &["adopt", &name]).await;
        let (gone, status) = says(tool, &["destroy", &name, "--force"]).await;
        assert_eq!((&gone["detail"], status), (&"Destroyed".into(), Some(0)), "{gone:#}");
        assert!(!tool.engine(&["inspect", &id]).await.0);
    })
    .await;
}

#[tokio::test]
async fn a_container_with_copied_labels_is_unverified_until_adopted_and_a_stopped_one_is_not() {
    with_rootful_engine("", async |tool| {
        let name = tool.case.name("copy").to_string();
        let id = stranger(tool, &name, &["--label=coracle.managed=true"]).await;
        let unverified = async || {
            let listed = tool.call(json!({ "operation": "list" })).await;
            listed["unverified"].as_array().unwrap().contains(&name.clone().into())
        };
        assert!(unverified().await);
        assert_eq!(says(tool, &["adopt", &name]).await.1, Some(0));
        assert!(!unverified().await);
        tool.destroy(&name).await;
        assert!(tool.engine(&["kill", &id]).await.0);
        let (stopped, status) = says(tool, &["adopt", &name]).await;
        assert_eq!((&stopped["code"], status), (&"not_running".into(), Some(1)), "{stopped:#}");
    })
    .await;
}

#[tokio::test]
async fn the_trail_of_what_was_done_is_checked() {
    with_rootful_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, "true").await;
        let (whole, status) = says(tool, &["audit", "verify"]).await;
        assert_eq!((&whole["lines"], status), (&4.into(), Some(0)), "{whole:#}");
        let dir = tool.state().join("audit");
        let mut files = std::fs::read_dir(&dir).unwrap().map(|it| it.unwrap().path());
        let file = files.find(|it| it.extension().is_some_and(|it| it == "jsonl")).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replacen("\"op\":\"exec\"", "\"op\":\"list\"", 1)).unwrap();
        let (broken, status) = says(tool, &["audit", "verify"]).await;
        assert_eq!((&broken["code"], &broken["details"]["line"], status), (&"audit_broken".into(), &3.into(), Some(1)));
        let reported = tool.run(["audit", "verify"], b"").await;
        assert_eq!(reported.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&reported.stderr).contains("broken at line 3"), "{reported:?}");
    })
    .await;
}

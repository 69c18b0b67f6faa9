//! Unknown names, and suggestions for them.

use serde_json::json;

use super::{text, typed};
use crate::engines::Lack;
use crate::tool::{with_engine, with_tool};

#[tokio::test]
async fn an_unknown_network_or_job_is_reported_with_the_existing_ones() {
    with_tool("", async |tool| {
        if tool.case.lacks(Lack::NamedNetworks) {
            return;
        }
        let network = tool.case.name("backend").to_string();
        let made = tool.call(json!({ "operation": "create_network", "name": network })).await;
        assert_eq!(made["success"], true, "{made:#}");
        let nearly = network.replacen("backend", "backnd", 1);
        let missing = tool.call(json!({ "operation": "destroy_network", "name": nearly })).await;
        let hint = missing["hint"].as_str().unwrap();
        assert!(hint.starts_with(&format!("did you mean `{network}`?")), "{missing:#}");
        tool.call(json!({ "operation": "destroy_network", "name": network })).await;
        let name = tool.created(json!({})).await;
        let begun = tool.call(json!({ "operation": "exec_background", "container": name, "command": "true" })).await;
        let Some(job) = begun["job_id"].as_str() else { return };
        for operation in ["exec_poll", "job_read", "job_wait", "exec_cancel"] {
            let call = json!({ "operation": operation, "container": name, "job_id": "0badc0de" });
            let missing = tool.call(call).await;
            assert_eq!(missing["code"], "job_not_found", "{missing:#}");
            assert!(missing["hint"].as_str().unwrap().contains(&format!("`{job}`")), "{operation}: {missing:#}");
        }
    })
    .await;
}

#[tokio::test]
async fn misspelt_purposes_conditions_saves_and_commands_get_the_nearest_name() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        for (words, meant) in [
            (vec!["create", "--purpose", "pyton"], "python"),
            (vec!["job-wait", &name, "0badc0de", "--until", "pattern", "--pattern", "x"], "regex"),
            (vec!["stat", &name], "status"),
            (vec!["saved", "lst"], "list"),
        ] {
            let output = typed(tool, &words).await;
            let stderr = text(&output.stderr);
            assert!(stderr.contains(&format!("did you mean `{meant}`?")), "{words:?}: {stderr}");
            assert!(!output.status.success());
        }
        let unknown = typed(tool, &["worktree", "diff", "nosuch"]).await;
        assert!(text(&unknown.stderr).contains("error[worktree_missing]"), "{}", text(&unknown.stderr));
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(listed["count"], 1, "a sandbox was created for an unknown name: {listed:#}");
    })
    .await;
}

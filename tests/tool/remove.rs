//! `destroy_all` (containers.md 14).

use serde_json::json;

use super::with_tool;
use crate::engines::ran;

#[tokio::test]
async fn s79_destroy_all_needs_a_word_and_spares_the_persistent() {
    with_tool("", async |tool| {
        let (one, two) = (tool.created(json!({})).await, tool.created(json!({ "persistent": true })).await);
        assert_eq!(tool.call(json!({ "operation": "destroy_all" })).await["code"], "confirm_required");
        let answer = tool.call(json!({ "operation": "destroy_all", "confirm": true })).await;
        assert_eq!(
            (&answer["destroyed"], answer["results"].as_array().map(Vec::len)),
            (&1.into(), Some(2)),
            "{answer:#}"
        );
        let kept = answer["results"].as_array().unwrap().iter().find(|it| it["kept"] == true).unwrap();
        assert_eq!(kept["container"], two);
        assert_eq!(tool.call(json!({ "operation": "status", "container": one })).await["code"], "not_found");
        let answer =
            tool.call(json!({ "operation": "destroy_all", "confirm": true, "include_persistent": true })).await;
        assert_eq!(answer["destroyed"], 1, "{answer:#}");
        ran("s79", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_persistent_container_that_stopped_is_started_again() {
    super::with_engine("", async |tool| {
        let name = tool.created(json!({ "persistent": true })).await;
        assert!(tool.engine(&["stop", "--time=0", &name]).await.0);
        let answer = tool.exec(&name, "echo up").await;
        assert_eq!(
            (&answer["stdout"], &answer["warnings"][0]["code"]),
            (&"up\n".into(), &"restarted".into()),
            "{answer:#}"
        );
    })
    .await;
}

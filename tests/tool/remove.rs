//! `destroy_all`.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::{Tool, with_engine, with_tool};
use crate::engines::{Lack, ran};

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
        let retained = answer["results"].as_array().unwrap().iter().find(|it| it["kept"] == true).unwrap();
        assert_eq!(retained["container"], two);
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

/// The file of a container's own, as its save on the host has it.
async fn destroyed_with_its_work(tool: &Tool<'_>, name: &str) -> serde_json::Value {
    let answer = tool.call(json!({ "operation": "destroy", "container": name })).await;
    assert_eq!(answer["success"], true, "{answer:#}");
    let saved = answer["saved"].as_array().unwrap();
    assert_eq!(
        (saved.len(), &saved[0]["path"], &saved[0]["files"]),
        (1, &"/workspace".into(), &1.into()),
        "{answer:#}"
    );
    assert_eq!(tool.call(json!({ "operation": "status", "container": name })).await["code"], "not_found");
    answer
}

#[tokio::test]
async fn a_container_can_be_removed_with_its_work_if_its_bind_is_gone() {
    with_engine("", async |tool| {
        if tool.case.lacks(Lack::Binds) {
            return;
        }
        let bound = tool.work().join("bound");
        std::fs::create_dir(&bound).unwrap();
        let name = tool.created(json!({ "mounts": [{ "host": "bound", "container": "/bound" }] })).await;
        tool.prints(&name, "echo kept > /workspace/file").await;
        assert!(tool.engine(&["kill", &name]).await.0);
        std::fs::remove_dir(&bound).unwrap();
        let answer = destroyed_with_its_work(tool, &name).await;
        let warning = answer["warnings"].as_array().unwrap().iter().find(|it| it["code"] == "mount_missing");
        let warning = warning.unwrap_or_else(|| panic!("{answer:#}"));
        assert!(warning["message"].as_str().unwrap().contains("/work/bound"), "{answer:#}");
    })
    .await;
}

#[tokio::test]
async fn a_link_in_the_place_of_a_protected_path_does_not_keep_its_container() {
    with_engine("", async |tool| {
        if tool.case.lacks(Lack::Binds) {
            return;
        }
        let (bound, elsewhere) = (tool.work().join("bound"), tool.home().join("elsewhere"));
        std::fs::create_dir_all(bound.join(".vscode")).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        let mounts = json!([{ "host": "bound", "container": "/bound", "mode": "rw" }]);
        let name = tool.created(json!({ "mounts": mounts })).await;
        tool.prints(&name, "echo kept > /workspace/file").await;
        assert!(tool.engine(&["kill", &name]).await.0);
        // Like another container with the same directory.
        std::fs::rename(bound.join(".vscode"), bound.join("moved")).unwrap();
        symlink(&elsewhere, bound.join(".vscode")).unwrap();
        destroyed_with_its_work(tool, &name).await;
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    })
    .await;
}

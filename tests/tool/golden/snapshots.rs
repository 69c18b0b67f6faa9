//! Snapshots: images of containers' files.

use coracle_runtime::FakeRuntime;
use coracle_runtime::fake::LOCAL_IMAGE;
use serde_json::json;

use super::{recorded, recorded_on};

#[tokio::test]
async fn snapshots_answer_as_before() {
    recorded("snapshots", "", async |it| {
        it.container("web", json!({})).await;
        it.call("none", json!({ "operation": "snapshots" })).await;
        it.call("a snapshot", json!({ "operation": "snapshot", "container": "web", "name": "base" })).await;
        it.call("the name again", json!({ "operation": "snapshot", "container": "web", "name": "base" })).await;
        it.call(
            "in its place",
            json!({ "operation": "snapshot", "container": "web", "name": "base", "replace": true }),
        )
        .await;
        it.call("a fresh name", json!({ "operation": "snapshot", "container": "web" })).await;
        it.call("of an unknown container", json!({ "operation": "snapshot", "container": "nobody", "name": "x" }))
            .await;
        it.call("a name that is none", json!({ "operation": "snapshot", "container": "web", "name": "A b" })).await;
        it.call("a container of it", json!({ "operation": "restore", "snapshot": "base", "name": "restored" })).await;
        it.call("of none", json!({ "operation": "restore", "snapshot": "missing" })).await;
        it.call("a fork", json!({ "operation": "fork", "container": "web", "name": "forked" })).await;
        it.call("all snapshots", json!({ "operation": "snapshots" })).await;
        it.call("one in use", json!({ "operation": "snapshot_delete", "snapshot": "base" })).await;
        it.call("its container goes", json!({ "operation": "destroy", "container": "restored" })).await;
        it.call("one that is not in use", json!({ "operation": "snapshot_delete", "snapshot": "base" })).await;
        it.call("one that is gone", json!({ "operation": "snapshot_delete", "snapshot": "base" })).await;
        it.call("none named", json!({ "operation": "snapshot_delete" })).await;
    })
    .await;
}

#[tokio::test]
async fn the_list_of_cached_images_is_unchanged() {
    let profile = format!("[profiles.tiny]\nimage = \"{LOCAL_IMAGE}\"\npackages = []\nsetup = [\"true\"]\n");
    recorded_on(FakeRuntime::with_programs, ("images", &profile), async |it| {
        it.call("none", json!({ "operation": "images" })).await;
        let create = |name: &str| json!({ "operation": "create", "purpose": "tiny", "name": name, "mount_cwd": false });
        it.call("it is made", create("first")).await;
        it.call("it is taken", create("second")).await;
        it.call("one container of it goes", json!({ "operation": "destroy", "container": "second" })).await;
        it.call("all images", json!({ "operation": "images" })).await;
        it.call("of a purpose", json!({ "operation": "images", "purpose": "python" })).await;
        it.call("what would go", json!({ "operation": "cache_clear", "dry_run": true })).await;
        it.call("one in use stays", json!({ "operation": "cache_clear" })).await;
        it.call("the other one goes", json!({ "operation": "destroy", "container": "first" })).await;
        it.call("it goes", json!({ "operation": "cache_clear", "purpose": "tiny" })).await;
    })
    .await;
}

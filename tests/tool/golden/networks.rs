//! Networks of the caller's own.

use serde_json::json;

use super::recorded;

#[tokio::test]
async fn networks_answer_as_before() {
    recorded("networks", "", async |it| {
        let name = |operation: &str, name: &str| json!({ "operation": operation, "name": name });
        it.call("none", json!({ "operation": "networks" })).await;
        it.call("a network", name("create_network", "backend")).await;
        it.call("the same again", name("create_network", "backend")).await;
        it.call("one without a way out", json!({ "operation": "create_network", "name": "inner", "internal": true }))
            .await;
        it.call("the same with one", json!({ "operation": "create_network", "name": "inner", "internal": false }))
            .await;
        it.call("a name of the engine's", name("create_network", "bridge")).await;
        it.call("a name that is none", name("create_network", "a b")).await;
        it.container("web", json!({ "network": "backend" })).await;
        it.call("all networks", json!({ "operation": "networks" })).await;
        it.call("one that is in use", name("destroy_network", "backend")).await;
        it.call("one that is not", name("destroy_network", "inner")).await;
        it.call("one that is gone", name("destroy_network", "inner")).await;
        it.call("one that never was", name("destroy_network", "nobody")).await;
    })
    .await;
}

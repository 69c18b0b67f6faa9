//! Containers from listing to removal: copies, saves, leftovers.

use coracle_runtime::FakeRuntime;
use coracle_types::Exit;
use serde_json::{Value, json};

use super::{Recording, recorded, recorded_on};

#[tokio::test]
async fn containers_are_looked_at_as_before() {
    recorded("list_and_status", "", async |it| {
        it.call("no containers", json!({ "operation": "list" })).await;
        it.container("web", json!({ "env": { "MODE": "test" } })).await;
        it.container("kept", json!({ "persistent": true, "ports": [8080], "network": "none" })).await;
        it.call("two containers", json!({ "operation": "list" })).await;
        let status = it.call("one of them", json!({ "operation": "status", "container": "web" })).await;
        let short = status["container_id"].as_str().unwrap();
        it.call("by its id", json!({ "operation": "status", "container": short, "health_check": true })).await;
        it.call("an unknown name", json!({ "operation": "status", "container": "wbe" })).await;
        health(it).await;
        gone(it).await;
    })
    .await;
}

async fn health(it: &Recording<'_>) {
    it.fake.reply("healthy", Exit::Code(0), "ok\n", "");
    it.fake.reply("sick", Exit::Code(1), "", "no answer\n");
    let wait = |more: Value| {
        let mut call = json!({ "operation": "wait_healthy", "container": "web", "interval": 1, "retries": 1 });
        crate::tool::merge(call.as_object_mut().unwrap(), more);
        call
    };
    it.call("a check that passes", wait(json!({ "health_command": "healthy" }))).await;
    it.call("a check that fails", wait(json!({ "health_command": "sick" }))).await;
    it.call("nothing to check", wait(json!({}))).await;
}

/// One that ended, and one that was removed from outside.
async fn gone(it: &Recording<'_>) {
    for (name, act) in [("web", FakeRuntime::crash as fn(&FakeRuntime, &_)), ("kept", FakeRuntime::disappear)] {
        let status = json!({ "operation": "status", "container": name });
        let answer = coracle::execute(
            coracle::operations::ALL,
            &it.process,
            coracle::CallInput::Text(status.to_string().into()),
        )
        .await
        .json;
        act(&it.fake, &coracle_types::ContainerId::parse(answer["id"].as_str().unwrap()).unwrap());
    }
    it.call("a container that ended", json!({ "operation": "status", "container": "web" })).await;
    it.call("a container that is missing", json!({ "operation": "status", "container": "kept" })).await;
    it.call("both of them", json!({ "operation": "list" })).await;
    it.call("a command in one that ended", json!({ "operation": "exec", "container": "web", "command": "true" })).await;
    it.call("a command in one that is missing", json!({ "operation": "exec", "container": "kept", "command": "true" }))
        .await;
}

#[tokio::test]
async fn copies_answer_as_before() {
    recorded_on(FakeRuntime::with_programs, ("copy", ""), async |it| {
        it.container("web", json!({})).await;
        it.file("data/a.txt", "one\n");
        it.file("data/deep/b.txt", "two\n");
        it.file("other.txt", "other\n");
        let copy_in = |host: &str, inside: &str, more: Value| {
            let mut call =
                json!({ "operation": "copy_in", "container": "web", "host_path": host, "container_path": inside });
            crate::tool::merge(call.as_object_mut().unwrap(), more);
            call
        };
        let copy_out = |inside: &str, host: &str, more: Value| {
            let mut call =
                json!({ "operation": "copy_out", "container": "web", "container_path": inside, "host_path": host });
            crate::tool::merge(call.as_object_mut().unwrap(), more);
            call
        };
        it.call("a file in", copy_in("data/a.txt", "/tmp/a.txt", json!({}))).await;
        it.call("a file in its way", copy_in("other.txt", "/tmp/a.txt", json!({ "overwrite": false }))).await;
        it.call("a directory in", copy_in("data", "/workspace/", json!({}))).await;
        it.call("a file out", copy_out("/tmp/a.txt", "out.txt", json!({}))).await;
        it.call("a file out, in the way", copy_out("/tmp/a.txt", "out.txt", json!({ "overwrite": false }))).await;
        it.call("a directory out", copy_out("/workspace/data", "back", json!({}))).await;
        it.call("into a directory that is missing", copy_out("/workspace/data", "nowhere/", json!({}))).await;
        it.call("no file on the host", copy_in("missing", "/tmp/", json!({}))).await;
        it.call("no file inside", copy_out("/missing", "x", json!({}))).await;
        it.call("a file that may not go in", copy_in("/etc/passwd", "/tmp/", json!({}))).await;
        it.call("a place where nothing may come out", copy_out("/tmp/a.txt", "/srv/x", json!({}))).await;
        it.call(
            "no such container",
            json!({ "operation": "copy_out", "container": "nobody", "container_path": "/x", "host_path": "y" }),
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn answers_about_ended_containers_are_unchanged() {
    recorded_on(FakeRuntime::with_programs, ("destroy", ""), async |it| {
        it.file("work.txt", "what only the container has\n");
        it.container("worked", json!({})).await;
        it.container("plain", json!({})).await;
        it.container("kept", json!({ "persistent": true })).await;
        let copy = json!({ "operation": "copy_in", "container": "worked", "host_path": "work.txt", "container_path": "/workspace/" });
        it.call("work that only it has", copy).await;
        it.call("given up", json!({ "operation": "destroy", "container": "worked", "discard": true })).await;
        it.call("saved and gone", json!({ "operation": "destroy", "container": "worked" })).await;
        it.call("gone already", json!({ "operation": "destroy", "container": "worked" })).await;
        it.call("never there", json!({ "operation": "destroy", "container": "nobody" })).await;
        it.run("what was saved", &["saved", "list"]).await;
        it.run("what was saved, as JSON", &["saved", "list", "--json"]).await;
        it.run("put back", &["saved", "restore", "worked", "--into", "./back", "--json"]).await;
        it.run("put back where something is", &["saved", "restore", "worked", "--into", "./back"]).await;
        it.run("restore of an unknown container", &["saved", "restore", "nobody", "--into", "./new", "--json"]).await;
        it.call("all, without a word", json!({ "operation": "destroy_all" })).await;
        it.call("all, but what is to stay", json!({ "operation": "destroy_all", "confirm": true })).await;
        it.call("all", json!({ "operation": "destroy_all", "confirm": true, "include_persistent": true })).await;
        it.call("no containers", json!({ "operation": "destroy_all", "confirm": true })).await;
    })
    .await;
}

#[tokio::test]
async fn the_answer_of_prune_is_unchanged() {
    recorded("prune", "", async |it| {
        it.call("nothing", json!({ "operation": "prune" })).await;
        it.container("gone", json!({})).await;
        it.call("a network of its own", json!({ "operation": "create_network", "name": "unused" })).await;
        let status = it.call("a container", json!({ "operation": "status", "container": "gone" })).await;
        it.fake.disappear(&coracle_types::ContainerId::parse(status["id"].as_str().unwrap()).unwrap());
        it.call("what would go", json!({ "operation": "prune" })).await;
        it.call("of one kind", json!({ "operation": "prune", "kinds": ["records"] })).await;
        it.call("only what is old", json!({ "operation": "prune", "older_than": "7d" })).await;
        it.call("a kind that is none", json!({ "operation": "prune", "kinds": ["dreams"] })).await;
        it.call("what goes", json!({ "operation": "prune", "dry_run": false })).await;
        it.call("nothing is left", json!({ "operation": "prune" })).await;
    })
    .await;
}

#[tokio::test]
async fn the_audit_trail_is_unchanged() {
    recorded("audit", "", async |it| {
        it.container("web", json!({})).await;
        it.call("a refusal", json!({ "operation": "destroy", "container": "web", "discard": true })).await;
        it.call("an end", json!({ "operation": "destroy", "container": "web" })).await;
        it.run("the trail", &["audit", "log"]).await;
        it.run("the trail as JSON", &["audit", "log", "--json"]).await;
        it.run("an operation's lines", &["audit", "log", "--operation", "destroy", "-n", "1"]).await;
        it.run("it is intact", &["audit", "verify"]).await;
        it.run("it is intact, as JSON", &["audit", "verify", "--json"]).await;
        let file = std::fs::read_dir(it.tool.state().join("audit")).unwrap().map(|it| it.unwrap().path());
        let file = file.into_iter().find(|it| it.extension().is_some_and(|it| it == "jsonl")).unwrap();
        let text = std::fs::read_to_string(&file).unwrap().replacen("\"destroy\"", "\"list\"", 1);
        std::fs::write(&file, text).unwrap();
        it.run("it was changed", &["audit", "verify", "--json"]).await;
    })
    .await;
}

//! `preflight`, and containers that are created or refused.

use std::time::Duration;

use coracle_runtime::FakeRuntime;
use coracle_runtime::fake::{LOCAL_IMAGE, Reply};
use coracle_types::Exit;
use serde_json::{Value, json};

use super::{Recording, recorded};

/// A `create` of the engine's own image, without the user's directory.
fn create(more: Value) -> Value {
    let mut call = json!({ "operation": "create", "image": LOCAL_IMAGE, "mount_cwd": false });
    crate::tool::merge(call.as_object_mut().unwrap(), more);
    call
}

/// Commands that set a container up.
fn set_up(fake: &FakeRuntime) {
    fake.reply("make setup", Exit::Code(0), "done\n", "");
    fake.reply("make check", Exit::Code(2), "one test\n", "it failed\n");
    fake.replies("serve --port 8080", [Reply::new(Exit::Code(0), "", "").after(Duration::from_secs(3600))]);
}

#[tokio::test]
async fn preflight_answers_as_before() {
    recorded("preflight", "", async |it| {
        it.call("all is well", json!({ "operation": "preflight" })).await;
        it.call("without the cache", json!({ "operation": "preflight", "refresh": true })).await;
        it.run("at the command line", &["preflight"]).await;
    })
    .await;
}

#[tokio::test]
async fn errors_of_the_configuration_are_unchanged() {
    recorded("config_invalid", "nonsense = 1\n", async |it| {
        it.call("preflight tells it", json!({ "operation": "preflight" })).await;
        it.call("everything else is refused", json!({ "operation": "list" })).await;
        it.run("at the command line", &["list"]).await;
    })
    .await;
}

#[tokio::test]
async fn create_answers_as_before() {
    recorded("create", "env_patterns = [\"HARM*\"]\n", async |it| {
        set_up(&it.fake);
        it.call("nothing but an image, and a fresh name", create(json!({}))).await;
        everything(it).await;
        short_forms_and_the_users_directory(it).await;
        names_that_are_taken(it).await;
        sources_of_a_container(it).await;
    })
    .await;
}

/// All options of a caller, as objects.
async fn everything(it: &Recording<'_>) {
    it.file("data/a.txt", "of the person\n");
    let call = create(json!({
        "name": "full",
        "workdir": "/src",
        "mounts": [{ "host": "data", "container": "/data", "mode": "ro" }],
        "ports": [{ "container": 8080 }, { "container": 53, "protocol": "udp" }],
        "env": { "MODE": "test", "API_TOKEN": "0123456789abcdefghij" },
        "labels": { "team": "a" },
        "config_files": { "/etc/app.conf": "on = true\n", "run.sh": { "content": "exit 0\n", "mode": "0755" } },
        "setup_commands": ["make setup", ["make", "check"]],
        "memory_limit": "1g",
        "cpu_limit": 1.5,
        "pids_limit": 100,
        "network": "none",
        "add_hosts": ["db:10.0.0.2"],
        "persistent": true,
    }));
    it.call("all fields", call).await;
}

async fn short_forms_and_the_users_directory(it: &Recording<'_>) {
    it.file("README.md", "of the person\n");
    let call = json!({
        "operation": "create", "image": "busybox", "name": "short", "user": "root",
        "ports": [8080], "env": ["MODE=test"], "mounts": ["data:/data:ro"], "setup_commands": ["make setup"],
    });
    it.call("short forms, and the working directory", call).await;
}

async fn names_that_are_taken(it: &Recording<'_>) {
    let again = |more: Value| {
        let mut call = json!({ "operation": "create", "image": LOCAL_IMAGE, "name": "taken", "mount_cwd": false });
        crate::tool::merge(call.as_object_mut().unwrap(), more);
        call
    };
    it.call("a name", again(json!({}))).await;
    it.call("the name again", again(json!({}))).await;
    it.call("the name again, to be reused", again(json!({ "if_exists": "reuse" }))).await;
    it.call("reused in other words", again(json!({ "if_exists": "reuse", "memory_limit": "1g" }))).await;
}

async fn sources_of_a_container(it: &Recording<'_>) {
    let main = json!({ "name": "serves", "main": ["serve", "--port", "8080"] });
    it.call("a program that it runs", create(main)).await;
    let missing = json!({ "name": "warned", "env_passthrough": ["HARMLESS"] });
    it.call("failed steps are reported and stop nothing", create(missing)).await;
    let stack = json!({ "services": { "db": { "image": LOCAL_IMAGE, "command": "sleep 1000" } } }).to_string();
    let beside = json!({ "name": "with-db", "compose_content": stack, "compose_project": "golden" });
    it.call("a stack beside it", create(beside)).await;
    let broken = json!({ "services": { "db": { "image": LOCAL_IMAGE, "privileged": true } } }).to_string();
    it.call("a stack that is refused", create(json!({ "name": "broken", "compose_content": broken }))).await;
}

#[tokio::test]
async fn refusals_of_create_are_unchanged() {
    recorded(
        "create_refused",
        "[security]\nmemory_max = \"8g\"\nimages = [\"busybox*\", \"docker.io/*\"]\n",
        async |it| {
            for (what, more) in [
                ("the host's own directory", json!({ "mounts": [{ "host": "/etc", "container": "/x" }] })),
                ("a directory outside the roots", json!({ "mounts": ["/srv:/x"] })),
                ("a directory that is missing", json!({ "mounts": ["missing:/x"] })),
                ("a privileged port", json!({ "ports": ["80:80"] })),
                ("too much memory", json!({ "memory_limit": "64g" })),
                ("a gpu", json!({ "gpu": true })),
                ("the host's network", json!({ "network": "host" })),
                ("another container's network", json!({ "network": "container:x" })),
                ("a network that is not there", json!({ "network": "missing" })),
                ("an image that may not be named", json!({ "image": "quay.io/x/y" })),
                ("an image that is nowhere", json!({ "image": "docker.io/nobody/nothing", "pull": "never" })),
                ("a purpose that is none", json!({ "purpose": "cobol" })),
                ("all variables", json!({ "env_passthrough": "all" })),
                ("variables that never go in", json!({ "env_passthrough": ["NO_SUCH_VARIABLE", "LANG"] })),
                ("keys for ssh", json!({ "forward_ssh": true })),
                ("a user that is not there", json!({ "user": "nobody-here" })),
                (
                    "fields that exclude each other",
                    json!({ "compose_content": "services: { a: { image: x } }", "network": "none" }),
                ),
                ("several refusals at once", json!({ "gpu": true, "ports": ["80:80"], "network": "host" })),
            ] {
                it.call(what, create(more)).await;
            }
        },
    )
    .await;
}

#[tokio::test]
async fn errors_of_invalid_calls_are_unchanged() {
    recorded("not_understood", "", async |it| {
        for (what, call) in [
            ("no operation", json!({})),
            ("an operation that is none", json!({ "operation": "teleport" })),
            ("an operation that is nearly one", json!({ "operation": "creat" })),
            ("an operation of another type", json!({ "operation": 7 })),
            ("a field that is none", json!({ "operation": "create", "memry_limit": "1g" })),
            ("a field of another operation", json!({ "operation": "list", "image": "busybox" })),
            ("a field that is missing", json!({ "operation": "exec", "container": "web" })),
            (
                "values of another type",
                json!({ "operation": "create", "ports": "x", "gpu": 1, "env": 7, "memory_limit": [] }),
            ),
            ("a value that is not one of a few", json!({ "operation": "create", "pull": "sometimes" })),
            ("a name that is none", json!({ "operation": "status", "container": "../x" })),
            ("a path that is none", json!({ "operation": "create", "workdir": "relative" })),
            (
                "a duration that is none",
                json!({ "operation": "exec", "container": "web", "command": "x", "timeout": "soon" }),
            ),
            (
                "a duration that is too long",
                json!({ "operation": "exec", "container": "web", "command": "x", "timeout": 86400 }),
            ),
        ] {
            it.call(what, call).await;
        }
        it.call_text("no JSON", "{\"operation\":").await;
        it.call_text("no object", "[1, 2]").await;
        it.call_text("a field twice", "{\"operation\":\"list\",\"operation\":\"status\"}").await;
    })
    .await;
}

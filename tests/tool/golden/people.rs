//! What people read at the command line, each line in a process with a fake engine of its own.

use coracle_runtime::fake::LOCAL_IMAGE;

use super::recorded;

#[tokio::test]
async fn people_read_what_they_read_before() {
    recorded("command_line", "", async |it| {
        it.types("a container", &["create", "--image", LOCAL_IMAGE, "--name", "web", "--mount-cwd=false"]).await;
        it.types(
            "a container with a step that fails",
            &[
                "create",
                "--image",
                LOCAL_IMAGE,
                "--name",
                "half",
                "--mount-cwd=false",
                "--setup-command",
                "make",
                "--strict",
            ],
        )
        .await;
        it.types("a refusal", &["create", "--image", LOCAL_IMAGE, "--port", "80:80"]).await;
        it.types("all containers", &["list"]).await;
        it.types("one container", &["status", "web"]).await;
        it.types("a command in one that is missing", &["exec", "web", "--", "make"]).await;
        it.types("jobs of nobody", &["jobs", "nobody"]).await;
        it.types("all jobs", &["jobs"]).await;
        it.types("networks", &["networks"]).await;
        it.types("a network", &["create-network", "backend"]).await;
        it.types("snapshots", &["snapshots"]).await;
        it.types("images", &["images"]).await;
        it.types("what would go", &["prune"]).await;
        it.types("the end of one", &["destroy", "web"]).await;
        it.types("the end of one that is gone", &["destroy", "web"]).await;
        it.types("the end of all", &["destroy-all", "--confirm"]).await;
        it.types("what was saved", &["saved", "list"]).await;
        it.types("sandboxes", &["sandbox", "list"]).await;
        it.types("worktrees", &["worktree", "list"]).await;
        it.types("an option that is none", &["create", "--imgae", "x"]).await;
        it.types("a command that is none", &["lsit"]).await;
        it.types("a wrong value, as JSON", &["exec", "web", "--timeout", "soon", "--json", "--", "x"]).await;
        it.types("the version", &["--version"]).await;
    })
    .await;
}

/// Commands that are no operations.
const OTHERS: &[&str] = &[
    "shell",
    "logs",
    "cp",
    "workspace",
    "run",
    "worktree",
    "worker",
    "sandbox",
    "saved",
    "setup",
    "call",
    "mcp",
    "start",
    "stop",
    "adopt",
    "audit",
];

#[tokio::test]
async fn commands_and_options_are_told_as_before() {
    recorded("help", "", async |it| {
        it.types("all commands", &["--help"]).await;
        let operations = coracle::ops::ALL.iter().map(|it| it.name.replace('_', "-"));
        for word in operations.chain(OTHERS.iter().map(|it| (*it).to_owned())) {
            it.types(&word, &[&word, "-h"]).await;
        }
        for words in [["worktree", "create"], ["saved", "restore"], ["worker", "run"], ["sandbox", "remove"]] {
            it.types(&words.join(" "), &[words[0], words[1], "-h"]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_in_words_of_json_is_answered_as_before() {
    recorded("call", "", async |it| {
        let create = format!(r#"{{"operation":"create","image":"{LOCAL_IMAGE}","name":"web","mount_cwd":false}}"#);
        it.types("a call", &["call", r#"{"operation":"list"}"#]).await;
        it.types("a call with news", &["call", "--stream", &create]).await;
        it.types("a call that fails", &["call", r#"{"operation":"status","container":"nobody"}"#]).await;
        it.types("a call that is none", &["call", "{"]).await;
    })
    .await;
}

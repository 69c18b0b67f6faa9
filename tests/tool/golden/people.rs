//! Text for people at the command line, each line in a process with a fake engine of its own.

use coracle_runtime::fake::LOCAL_IMAGE;

use super::recorded;

#[tokio::test]
async fn people_read_what_they_read_before() {
    recorded("command_line", "", async |it| {
        it.run("a container", &["create", "--image", LOCAL_IMAGE, "--name", "web", "--mount-cwd=false"]).await;
        it.run(
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
        it.run("a refusal", &["create", "--image", LOCAL_IMAGE, "--port", "80:80"]).await;
        it.run("all containers", &["list"]).await;
        it.run("one container", &["status", "web"]).await;
        it.run("a command in one that is missing", &["exec", "web", "--", "make"]).await;
        it.run("jobs of an unknown container", &["jobs", "nobody"]).await;
        it.run("all jobs", &["jobs"]).await;
        it.run("networks", &["networks"]).await;
        it.run("a network", &["create-network", "backend"]).await;
        it.run("snapshots", &["snapshots"]).await;
        it.run("images", &["images"]).await;
        it.run("what would go", &["prune"]).await;
        it.run("the end of one", &["destroy", "web"]).await;
        it.run("the end of one that is gone", &["destroy", "web"]).await;
        it.run("the end of all", &["destroy-all", "--confirm"]).await;
        it.run("what was saved", &["saved", "list"]).await;
        it.run("sandboxes", &["sandbox", "list"]).await;
        it.run("worktrees", &["worktree", "list"]).await;
        it.run("an option that is none", &["create", "--imgae", "x"]).await;
        it.run("a command that is none", &["lsit"]).await;
        it.run("a wrong value, as JSON", &["exec", "web", "--timeout", "soon", "--json", "--", "x"]).await;
        it.run("the version", &["--version"]).await;
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
    "serve",
    "start",
    "stop",
    "adopt",
    "audit",
];

#[tokio::test]
async fn help_of_commands_and_options_is_unchanged() {
    recorded("help", "", async |it| {
        it.run("the first commands", &["--help"]).await;
        it.run("all commands", &["help", "--all"]).await;
        let operations = coracle::operations::ALL.iter().map(|it| it.name.replace('_', "-"));
        for word in operations.chain(OTHERS.iter().map(|it| (*it).to_owned())) {
            it.run(&word, &[&word, "-h"]).await;
        }
        for words in [["worktree", "create"], ["saved", "restore"], ["worker", "run"], ["sandbox", "remove"]] {
            it.run(&words.join(" "), &[words[0], words[1], "-h"]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_in_words_of_json_is_answered_as_before() {
    recorded("call", "", async |it| {
        let create = format!(r#"{{"operation":"create","image":"{LOCAL_IMAGE}","name":"web","mount_cwd":false}}"#);
        it.run("a call", &["call", r#"{"operation":"list"}"#]).await;
        it.run("a call with news", &["call", "--stream", &create]).await;
        it.run("a call that fails", &["call", r#"{"operation":"status","container":"nobody"}"#]).await;
        it.run("a call that is none", &["call", "{"]).await;
    })
    .await;
}

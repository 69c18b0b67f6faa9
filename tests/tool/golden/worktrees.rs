//! Worktrees of workflows, in a sandbox whose programs are this host's.

use std::path::Path;

use coracle_client::LinkSettings;
use coracle_runtime::fake::LOCAL_IMAGE;
use coracle_runtime::{ContainerRuntime, ExecTarget, FakeRuntime, LabelFilter};
use coracle_types::{Command, ContainerPath, Exec, Exit, Ids};
use serde_json::{Value, json};

use super::{Recording, recorded_on};
use crate::engines::git;

/// Owns the files of a sandbox.
const AGENT: Ids = Ids { uid: 10_002, gid: 10_002 };

fn config() -> String {
    format!("[proxy]\ntransport = \"link\"\n[sandbox.profiles.default]\nimage = \"{LOCAL_IMAGE}\"\n")
}

/// A commit with a fixed id.
const FIRST: &str = "commit refs/heads/main\ncommitter A <a@example.com> 1767323045 +0000\ndata 5\nfirst\n\
    M 100644 inline README.md\ndata 6\nhello\n\n";

/// The user's repository.
pub(in crate::tool) async fn repository(dir: &Path) {
    std::fs::create_dir(dir).unwrap();
    git(dir, &["init", "--quiet", "--initial-branch=main"], "").await;
    git(dir, &["fast-import", "--quiet"], FIRST).await;
    git(dir, &["reset", "--quiet", "--hard"], "").await;
}

/// The agent's work in its worktree, in the only sandbox.
pub(in crate::tool) async fn agent(fake: &FakeRuntime, script: &str) {
    let sandboxes = LabelFilter(vec![("coracle.role".into(), Some("sandbox".into()))]);
    let id = fake.list(&sandboxes).await.unwrap().remove(0).id;
    let link = fake.link(&id, None, LinkSettings::default()).await.unwrap();
    let cwd = ContainerPath::parse("/workspace/worktrees/issue-1").unwrap();
    let mut exec = Exec::new(Command::Shell(script.into()), AGENT, cwd);
    for (name, value) in [("NAME", "Agent"), ("EMAIL", "agent@example.com"), ("DATE", "1767326645 +0000")] {
        exec.env.insert(format!("GIT_AUTHOR_{name}"), value.into());
        exec.env.insert(format!("GIT_COMMITTER_{name}"), value.into());
    }
    let ended = ExecTarget::Guest(link).exec(exec).await.unwrap();
    assert_eq!(ended.exit, Exit::Code(0), "{ended:?}");
}

fn about(operation: &str, more: Value) -> Value {
    let mut call = json!({ "operation": format!("worktree_{operation}"), "workflow": "issue-1" });
    crate::tool::merge(call.as_object_mut().unwrap(), more);
    call
}

#[tokio::test]
async fn worktrees_answer_as_before() {
    recorded_on(FakeRuntime::with_programs_as_users, ("worktrees", &config()), async |it| {
        repository(&it.tool.work().join("web")).await;
        it.worktree("none", json!({ "operation": "worktree_list" })).await;
        it.worktree("nothing to begin from", about("create", json!({ "source": "missing" }))).await;
        let invalid = json!({ "operation": "worktree_create", "source": "web", "workflow": "A b" });
        it.worktree("a name that is none", invalid).await;
        it.worktree("a worktree", about("create", json!({ "source": "web" }))).await;
        it.worktree("the same again", about("create", json!({ "source": "web" }))).await;
        it.worktree("no changes", about("diff", json!({}))).await;
        it.worktree("nothing to push", about("push", json!({}))).await;
        changed(it).await;
        taken_out(it).await;
        removed(it).await;
    })
    .await;
}

async fn changed(it: &Recording<'_>) {
    agent(&it.fake, "echo more >> README.md && echo new > new.txt && git add --all && git commit -qm second").await;
    agent(&it.fake, "echo loose > loose.txt").await;
    it.worktree("all worktrees", json!({ "operation": "worktree_list" })).await;
    it.worktree("all changes", about("diff", json!({}))).await;
    it.worktree("names and numbers alone", about("diff", json!({ "stat_only": true }))).await;
    it.worktree("changes of an unknown workflow", json!({ "operation": "worktree_diff", "workflow": "nobody" })).await;
}

async fn taken_out(it: &Recording<'_>) {
    it.worktree("into a file", about("export", json!({ "file": "all.diff" }))).await;
    it.worktree("into a file that is there", about("export", json!({ "file": "all.diff" }))).await;
    it.worktree("the commits", about("export", json!({ "file": "commits.mbox", "format": "mbox" }))).await;
    it.worktree("to where it came from", about("push", json!({}))).await;
    it.worktree("into the checkout", about("apply", json!({ "to": "web" }))).await;
    it.worktree("into the checkout again", about("apply", json!({ "to": "web" }))).await;
    it.worktree("outside", about("apply", json!({ "to": "/srv" }))).await;
}

async fn removed(it: &Recording<'_>) {
    it.worktree("given up", about("remove", json!({ "discard": true }))).await;
    it.worktree("removed, and what is not committed is saved", about("remove", json!({}))).await;
    it.worktree("removed already", about("remove", json!({}))).await;
    it.worktree("none is left", json!({ "operation": "worktree_list" })).await;
}

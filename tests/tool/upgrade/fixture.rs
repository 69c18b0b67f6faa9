//! Creates one of each thing that a state directory holds.

use std::path::Path;
use std::time::Duration;

use coracle_runtime::ContainerRuntime;
use coracle_runtime::fake::LOCAL_IMAGE;
use coracle_types::ContainerId;
use serde_json::{Value, json};

use super::{Client, archive};
use crate::tool::golden::worktrees::{agent, repository};

/// Work in a container: a commit, a change, and a file outside the repository.
const WORK: &str = "git init -q app && cd app && echo one > a && git add a && \
    git -c user.name=A -c user.email=a@example.com commit -qm mine && echo two > a && cd .. && echo loose > loose";

impl Client<'_> {
    /// Creates everything, and writes it to the directories `state` and `engine`.
    pub(super) async fn write_fixture(&self, dir: &Path) {
        self.create_containers().await;
        self.create_images_and_networks().await;
        self.create_sessions().await;
        self.create_worktrees().await;
        self.create_saved_work().await;
        std::fs::create_dir(dir.join("engine")).unwrap();
        self.fake.save_to(&dir.join("engine")).unwrap();
        std::fs::create_dir(dir.join("state")).unwrap();
        archive::copy(&self.tool.state(), &dir.join("state"));
    }

    async fn create(&self, name: &str, more: Value) -> Value {
        let mut call = json!({ "operation": "create", "name": name, "image": LOCAL_IMAGE, "mount_cwd": false });
        crate::tool::merge(call.as_object_mut().unwrap(), more);
        self.call(call).await
    }

    async fn run(&self, container: &str, command: &str) {
        let ran = self.call(json!({ "operation": "exec", "container": container, "command": command })).await;
        assert_eq!(ran["exit_code"], 0, "{ran:#}");
    }

    /// Containers: one with a job, a stopped one, one with a stack, and one of an MCP session.
    async fn create_containers(&self) {
        self.create(
            "web",
            json!({ "env": { "MODE": "test", "API_TOKEN": "secret" }, "labels": { "team": "a" }, "ports": [8080] }),
        )
        .await;
        self.run("web", "echo work > work.txt").await;
        self.call(json!({ "operation": "exec_background", "container": "web", "command": "sleep 1000" })).await;
        let retained =
            self.create("kept", json!({ "persistent": true, "memory_limit": "1g", "network": "none" })).await;
        self.run("kept", "echo old > old.txt").await;
        let id = ContainerId::parse(retained["id"].as_str().unwrap()).unwrap();
        self.fake.stop(&id, Duration::ZERO).await.unwrap();
        let stack = json!({ "services": { "db": { "image": LOCAL_IMAGE, "command": "sleep 1000" } } }).to_string();
        self.create("with-db", json!({ "compose_content": stack, "compose_project": "stack" })).await;
        let served = self.create_in_mcp_session().await;
        assert_eq!(served["success"], true, "{served:#?}");
    }

    async fn create_images_and_networks(&self) {
        let purpose = json!({ "operation": "create", "name": "tiny", "purpose": "tiny", "mount_cwd": false });
        self.call(purpose).await;
        self.call(json!({ "operation": "destroy", "container": "tiny" })).await;
        self.call(json!({ "operation": "snapshot", "container": "web", "name": "base" })).await;
        self.call(json!({ "operation": "create_network", "name": "backend" })).await;
    }

    /// Files of a session, and a container for its snippets, which pins their image.
    async fn create_sessions(&self) {
        let session = self.session("agent-1");
        let write = json!({ "path": "src/a.txt", "content": "of the agent\n" });
        let written = self.tool(&session, "write_file", write).await;
        assert_eq!(written["success"], true, "{written:#}");
        self.tool(&session, "run_code", json!({ "code": "echo 1", "language": "bash" })).await;
    }

    async fn create_worktrees(&self) {
        repository(&self.tool.work().join("repository")).await;
        let create = json!({ "operation": "worktree_create", "source": "repository", "workflow": "issue-1" });
        self.call(create).await;
        agent(&self.fake, "echo more >> README.md && git commit -qam second && echo loose > loose.txt").await;
    }

    async fn create_saved_work(&self) {
        self.create("gone", json!({})).await;
        self.run("gone", WORK).await;
        let gone = self.call(json!({ "operation": "destroy", "container": "gone" })).await;
        assert_eq!(gone["saved"].as_array().map(Vec::len), Some(2), "{gone:#}");
    }
}

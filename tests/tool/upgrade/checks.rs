//! Checks of the next version on a state directory of this one.

use std::path::{Path, PathBuf};

use coracle_runtime::fake::LOCAL_IMAGE;
use coracle_runtime::{ContainerRuntime, ImageStore as _, LabelFilter};
use coracle_types::ImageRef;
use serde_json::{Value, json};

use super::Client;
use crate::engines::git;

/// The names in a list.
fn names<'a>(rows: &'a Value, field: &str) -> Vec<&'a str> {
    let rows = rows.as_array().unwrap_or_else(|| panic!("no list: {rows:#}"));
    let mut names: Vec<_> = rows.iter().map(|it| it[field].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Records that could not be read and were renamed.
pub(super) fn damaged(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|it| it.is_dir());
    let is_bad = |it: &PathBuf| it.file_name().is_some_and(|it| it.to_string_lossy().contains(".bad"));
    files.into_iter().filter(is_bad).chain(dirs.iter().flat_map(|it| damaged(it))).collect()
}

impl Client<'_> {
    async fn prints(&self, container: &str, command: &str) -> String {
        let ran = self.call(json!({ "operation": "exec", "container": container, "command": command })).await;
        assert_eq!(ran["exit_code"], 0, "{ran:#}");
        ran["stdout"].as_str().unwrap().to_owned()
    }

    pub(super) async fn check_lists(&self) {
        let listed = self.call(json!({ "operation": "list" })).await;
        assert_eq!(names(&listed["containers"], "name"), ["kept", "served", "web", "with-db"], "{listed:#}");
        assert_eq!(listed["unverified"], json!([]), "{listed:#}");
        for row in listed["containers"].as_array().unwrap() {
            let stopped = row["name"] == "kept";
            assert_eq!((&row["running"], &row["persistent"]), (&(!stopped).into(), &stopped.into()), "{row:#}");
        }
        let trail = self.run_json(&["audit", "verify", "--json"]).await;
        assert!(trail["lines"].as_u64().unwrap() > 20, "{trail:#}");
        assert_eq!(damaged(&self.tool.state()), Vec::<PathBuf>::new());
    }

    pub(super) async fn check_containers(&self) {
        assert_eq!(self.prints("web", "cat work.txt; echo $MODE").await, "work\ntest\n");
        let status = self.call(json!({ "operation": "status", "container": "web" })).await;
        // Possible secrets are only in the guest's memory, and a reboot loses them.
        assert_eq!(status["env_missing"], json!(["API_TOKEN"]), "{status:#}");
        assert_eq!(status["session"], "default", "{status:#}");
        assert_eq!(status["ports"][0]["container"], 8080, "{status:#}");
        let jobs = self.call(json!({ "operation": "jobs", "container": "web" })).await;
        assert_eq!((&jobs["count"], &jobs["jobs"][0]["state"]), (&1.into(), &"lost".into()), "{jobs:#}");
        let again = json!({ "operation": "create", "name": "web", "image": LOCAL_IMAGE, "mount_cwd": false,
            "env": { "MODE": "test", "API_TOKEN": "secret" }, "labels": { "team": "a" }, "ports": [8080], "if_exists": "reuse" });
        let again = self.call(again).await;
        assert_eq!((&again["reused"], &again["id"]), (&true.into(), &status["id"]), "{again:#}");
        let stack = self.call(json!({ "operation": "status", "container": "with-db" })).await;
        assert_eq!(stack["compose_services"][0]["service"], "db", "{stack:#}");
    }

    pub(super) async fn check_images_and_networks(&self) {
        let tiny =
            self.call(json!({ "operation": "create", "name": "tiny", "purpose": "tiny", "mount_cwd": false })).await;
        assert_eq!((&tiny["cache_used"], &tiny["image_source"]), (&true.into(), &"cache".into()), "{tiny:#}");
        let snapshots = self.call(json!({ "operation": "snapshots" })).await;
        assert_eq!(names(&snapshots["snapshots"], "name"), ["base"], "{snapshots:#}");
        self.call(json!({ "operation": "restore", "snapshot": "base", "name": "restored" })).await;
        assert_eq!(self.prints("restored", "cat work.txt").await, "work\n");
        let networks = self.call(json!({ "operation": "networks" })).await;
        assert!(names(&networks["networks"], "name").contains(&"backend"), "{networks:#}");
    }

    pub(super) async fn check_sessions(&self) {
        let session = self.session("agent-1");
        let read = self.tool(&session, "read_file", json!({ "path": "src/a.txt" })).await;
        assert_eq!(read["value"]["content"], "   1 | of the agent", "{read:#}");
        // It is the same container: another specification would have replaced it.
        assert_eq!((&read["workspace"]["generation"], &read["warnings"]), (&1.into(), &json!([])), "{read:#}");
        self.check_pinned_image().await;
        let ended = coracle_prepare::session_tools::end(&session.context).await.unwrap();
        assert_eq!(ended["success"], true, "{ended:#?}");
        assert_eq!(ended["saved"][0]["files"], 1, "{ended:#?}");
    }

    /// The image of snippets is pinned to the id that it had.
    async fn check_pinned_image(&self) {
        let images = self.fake.list_images(&LabelFilter::default()).await.unwrap();
        let id = |tag: &str| images.iter().find(|it| it.tags.iter().any(|it| it.contains(tag))).unwrap().id.clone();
        let name_it = async |image| {
            let tag = ImageRef::parse(LOCAL_IMAGE).unwrap();
            self.fake.tag_image(&image, &tag).await.unwrap();
        };
        name_it(id("snapshot")).await;
        let snippet = json!({ "code": "echo 1", "language": "bash" });
        let refused = self.tool(&self.session("agent-2"), "run_code", snippet).await;
        assert_eq!(refused["code"], "image_changed", "{refused:#}");
        name_it(id(LOCAL_IMAGE)).await;
    }

    pub(super) async fn check_worktrees(&self) {
        let listed = self.call(json!({ "operation": "worktree_list", "start": true })).await;
        let row = &listed["worktrees"][0];
        assert_eq!(
            (&row["id"], &row["ahead"], &row["untracked"]),
            (&"issue-1".into(), &1.into(), &1.into()),
            "{listed:#}"
        );
        let diff = self.call(json!({ "operation": "worktree_diff", "workflow": "issue-1" })).await;
        assert_eq!(names(&diff["files"], "path"), ["README.md", "loose.txt"], "{diff:#}");
        let removed = self.call(json!({ "operation": "worktree_remove", "workflow": "issue-1" })).await;
        assert_eq!(
            (&removed["sandbox_removed"], &removed["saved"]["kind"]),
            (&true.into(), &"git".into()),
            "{removed:#}"
        );
    }

    /// The save in the archive, and those of the checks before this one.
    pub(super) async fn check_saved_work(&self) {
        let saved = self.run_json(&["saved", "list", "--json"]).await;
        assert_eq!(saved["count"], 3, "{saved:#}");
        let restored = self.run_json(&["saved", "restore", "gone", "--into", "./back", "--json"]).await;
        let back = self.tool.work().join("back/workspace");
        let text = |path: &str| std::fs::read_to_string(back.join(path)).unwrap();
        assert_eq!((text("loose"), text("app/a")), ("loose\n".into(), "two\n".into()), "{restored:#}");
        let app = restored["restored"].as_array().unwrap().iter().find(|it| it["from"] == "/workspace/app").unwrap();
        git(&self.tool.work(), &["clone", "--quiet", app["commits"]["bundle"].as_str().unwrap(), "cloned"], "").await;
        assert_eq!(git(&self.tool.work().join("cloned"), &["log", "--format=%s"], "").await, "mine");
    }

    pub(super) async fn check_removal(&self) {
        let gone = self.call(json!({ "operation": "destroy", "container": "gone" })).await;
        assert_eq!(gone["already_gone"], true, "{gone:#}");
        for (name, files) in [("web", Some(1)), ("kept", Some(1)), ("with-db", None), ("served", None)] {
            let gone = self.call(json!({ "operation": "destroy", "container": name })).await;
            assert_eq!(gone["saved"][0]["files"].as_u64(), files, "{gone:#}");
        }
        self.call(json!({ "operation": "destroy_all", "confirm": true })).await;
        self.call(json!({ "operation": "snapshot_delete", "name": "base" })).await;
        self.call(json!({ "operation": "destroy_network", "name": "backend" })).await;
        let ours = LabelFilter(vec![("coracle.managed".into(), Some("true".into()))]);
        assert_eq!(self.fake.list(&ours).await.unwrap(), [], "nothing of ours is left");
        assert_eq!(self.call(json!({ "operation": "list" })).await["count"], 0);
        self.run_json(&["audit", "verify", "--json"]).await;
    }
}

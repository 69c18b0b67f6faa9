//! Binds of services: a link in place of the source is never followed at a start.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_types::{ContainerId, EngineKind, Handle};
use serde_json::{Value, json};

use super::stacks::stack;
use super::{Tool, eventually, with_rootful_engine, with_rootful_tool};
use crate::engines::Lack;

const SECRET: &str = "canary-9c3e";

/// A directory of the host that no root covers.
fn outside(tool: &Tool<'_>) -> PathBuf {
    let dir = tool.home().join("outside");
    std::fs::create_dir_all(&dir).unwrap();
    for name in ["secret", "conf"] {
        std::fs::write(dir.join(name), SECRET).unwrap();
    }
    dir
}

/// A working directory that a service may write as user 1000.
fn open_work(tool: &Tool<'_>) -> PathBuf {
    let work = tool.work().canonicalize().unwrap();
    std::fs::set_permissions(&work, std::fs::Permissions::from_mode(0o777)).unwrap();
    work
}

/// Prints the content of its binds, and continues.
fn prints(paths: &str) -> Value {
    json!(["sh", "-c", format!("cat {paths}; trap 'exit 0' TERM; sleep 600 & wait")])
}

fn bind(work: &Path, source: &str, target: &str, read_only: bool) -> Value {
    json!({ "type": "bind", "source": work.join(source), "target": target, "read_only": read_only })
}

/// The output of a service at all its starts.
async fn printed(tool: &Tool<'_>, id: &ContainerId) -> String {
    String::from_utf8(tool.case.runtime.logs(id, 1 << 16).await.unwrap()).unwrap()
}

/// Names in the state directory for files of stacks.
pub(super) fn names_of_files(tool: &Tool<'_>) -> Vec<PathBuf> {
    let dirs = tool.state().join("stack").read_dir().into_iter().flatten().map(|it| it.unwrap().path());
    dirs.collect()
}

#[tokio::test]
async fn a_link_in_place_of_a_services_file_is_never_followed_at_a_later_start() {
    with_rootful_engine("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let (outside, work) = (outside(tool), open_work(tool));
        for name in ["conf", "key", "data"] {
            std::fs::write(work.join(name), "first\n").unwrap();
        }
        std::fs::set_permissions(work.join("data"), std::fs::Permissions::from_mode(0o666)).unwrap();
        let web = json!({ "command": prints("/conf /data /run/secrets/key"), "user": "1000:1000", "secrets": ["key"],
            "volumes": [bind(&work, "conf", "/conf", true), bind(&work, "data", "/data", false)] });
        let mut file = stack(tool, json!({ "web": web }));
        file["secrets"] = json!({ "key": { "file": work.join("key") } });
        let call = json!({ "compose_content": file.to_string(), "mount_cwd": true, "persistent": true });
        let made = tool.create(call).await;
        assert_eq!(made["success"], true, "{made:#}");
        let name = made["container"].as_str().unwrap();
        let service = format!("{}-web-1", made["compose_project"].as_str().unwrap());
        let id = tool.case.runtime.inspect(&Handle::parse(&service).unwrap()).await.unwrap().id;
        // Changes in place are visible on both sides.
        std::fs::write(work.join("conf"), "edited\n").unwrap();
        assert_eq!(tool.prints(&service, "cat /conf && echo written > /data").await, "edited");
        assert_eq!(std::fs::read_to_string(work.join("data")).unwrap(), "written\n");
        let swap = format!(
            "cd /workspace && for it in conf key data; do mv $it $it.old && ln -s {}/secret $it; done",
            outside.display()
        );
        tool.prints(name, &swap).await;
        assert_eq!(std::fs::read_to_string(work.join("conf")).unwrap(), SECRET, "the link leads there on the host");

        tool.case.runtime.stop(&id, Duration::ZERO).await.unwrap();
        tool.case.runtime.start(&id).await.unwrap();
        eventually("the service is there again", Duration::from_secs(30), async || {
            printed(tool, &id).await.contains("edited")
        })
        .await;
        if tool.case.engine() == EngineKind::Docker {
            assert!(tool.engine(&["update", "--restart=always", &service]).await.0);
            let crashed = tool.exec(&service, "kill -TERM 1").await;
            eventually("the engine starts it again by itself", Duration::from_secs(30), async || {
                printed(tool, &id).await.matches("edited").count() == 2
            })
            .await;
            assert!(!crashed.to_string().contains(SECRET), "{crashed:#}");
            assert!(tool.engine(&["update", "--restart=no", &service]).await.0);
        }
        // A call starts it, too.
        tool.case.runtime.stop(&id, Duration::ZERO).await.unwrap();
        let seen = tool.exec(&service, "cat /conf /data /run/secrets/key; echo written again > /data").await;
        assert_eq!((&seen["success"], &seen["stdout"]), (&true.into(), &"edited\nwritten\nfirst\n".into()), "{seen:#}");
        let log = printed(tool, &id).await;
        assert!(!log.contains(SECRET), "{log}");
        assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), SECRET);
        assert_eq!(names_of_files(tool).len(), 1);
        tool.destroy(name).await;
        assert_eq!(names_of_files(tool).len(), 0);
    })
    .await;
}

#[tokio::test]
async fn replacements_by_one_service_before_another_starts_are_not_followed() {
    with_rootful_engine("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let (outside, work) = (outside(tool), open_work(tool));
        for dir in ["a/b", "out"] {
            std::fs::create_dir_all(work.join(dir)).unwrap();
        }
        for path in ["a", "a/b", "out"] {
            std::fs::set_permissions(work.join(path), std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        for file in ["conf", "a/b/secret"] {
            std::fs::write(work.join(file), "first").unwrap();
        }
        // Renames the directory, one above it, and the file.
        let swap = format!(
            "cd /w; mv a/b a/b.old && ln -s {0} a/b; mv a a.old && mkdir a && ln -s {0} a/b; mv conf conf.old; ln -s {0}/conf conf; true",
            outside.display()
        );
        let writer = json!({ "command": ["sh", "-c", swap], "user": "1000:1000", "volumes": [bind(&work, "", "/w", false)] });
        let victim = json!({ "command": prints("/b/secret /conf > /out/read"), "user": "1000:1000",
            "depends_on": { "writer": { "condition": "service_completed_successfully" } },
            "volumes": [bind(&work, "a/b", "/b", true), bind(&work, "conf", "/conf", true), bind(&work, "out", "/out", false)] });
        let file = stack(tool, json!({ "writer": writer, "victim": victim })).to_string();
        let made = tool.create(json!({ "compose_content": file })).await;
        assert_eq!(std::fs::read_to_string(work.join("out/read")).unwrap(), "firstfirst", "{made:#}");
        assert_eq!(made["success"], true, "{made:#}");
        assert!(std::fs::symlink_metadata(work.join("conf")).unwrap().is_symlink(), "the file was exchanged");
    })
    .await;
}

#[tokio::test]
async fn stacks_of_one_file_run_concurrently_and_leave_no_bound_files() {
    with_rootful_tool("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let work = open_work(tool);
        std::fs::create_dir(work.join("init")).unwrap();
        std::fs::write(work.join("conf"), "text").unwrap();
        let app = json!({ "command": ["true"], "user": "1000:1000",
            "volumes": [bind(&work, "", "/app", false), bind(&work, "conf", "/conf", true)] });
        let db = json!({ "command": ["true"], "user": "1000:1000", "volumes": [bind(&work, "init", "/init", true)] });
        let call = json!({ "compose_content": stack(tool, json!({ "app": app, "db": db })).to_string() });
        let first = tool.created(call.clone()).await;
        let second = tool.created(call.clone()).await;
        assert_eq!(names_of_files(tool).len(), 2);
        tool.destroy(&first).await;
        assert_eq!(names_of_files(tool).len(), 1, "the other one's stay");
        // A container that may write to the directory could replace what a stack binds in it.
        let writer = tool.create(json!({ "mount_cwd": true })).await;
        assert_eq!(writer["success"], true, "{writer:#}");
        let refused = tool.create(call).await;
        assert_eq!(refused["details"]["problems"][0]["rule"], "mount.shared", "{refused:#}");
        tool.destroy(&second).await;
        assert_eq!(names_of_files(tool).len(), 0, "nothing is left of what was refused, either");
    })
    .await;
}

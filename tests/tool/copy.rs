//! Files in and out.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

use serde_json::json;

use super::{Tool, eventually, with_engine};
use crate::engines::ran;

async fn copy(tool: &Tool<'_>, operation: &str, container: &str, host: &str, inside: &str) -> serde_json::Value {
    let call = json!({ "operation": operation, "container": container, "host_path": host, "container_path": inside });
    tool.call(call).await
}

#[tokio::test]
async fn s68_copied_trees_are_equal_and_hostile_ones_stay_in_their_target() {
    with_engine("", async |tool| {
        let tree = tool.work().join("tree");
        std::fs::create_dir_all(tree.join("deep/er")).unwrap();
        std::fs::write(tree.join("deep/er/run"), b"\0\xff\n").unwrap();
        std::fs::set_permissions(tree.join("deep/er/run"), PermissionsExt::from_mode(0o750)).unwrap();
        symlink("deep/er/run", tree.join("link")).unwrap();
        symlink("/etc/passwd", tree.join("out")).unwrap();
        let name = tool.created(json!({ "user": "1234:1234" })).await;
        let answer = copy(tool, "copy_in", &name, "tree", "new/place/").await;
        assert_eq!((&answer["files"], &answer["dirs"]), (&2.into(), &3.into()), "{answer:#}");
        assert_eq!(answer["skipped"].as_array().unwrap().len(), 1);
        assert_eq!(answer["container_path"], "/workspace/new/place/tree");
        let seen = tool.prints(&name, "cd new/place/tree && stat -c '%u %a' deep/er/run && readlink link").await;
        assert_eq!(seen, "1234 750\ndeep/er/run");

        tool.prints(
            &name,
            "cd new/place/tree && ln -s / root && ln -s ../../../.. up && mkfifo pipe && chmod u+s deep/er/run",
        )
        .await;
        let answer = copy(tool, "copy_out", &name, "back", "new/place/tree").await;
        assert_eq!(answer["success"], true, "{answer:#}");
        let run = tool.work().join("back/deep/er/run");
        assert_eq!(std::fs::read(&run).unwrap(), b"\0\xff\n");
        assert_eq!(run.metadata().unwrap().mode() & 0o7777, 0o750);
        assert_eq!(answer["skipped"].as_array().unwrap().len(), 3, "{answer:#}");
        for hostile in ["root", "up", "pipe"] {
            assert!(tool.work().join("back").join(hostile).symlink_metadata().is_err(), "{hostile}");
        }
        let left = std::fs::read_dir(tool.temp()).unwrap().map(|it| it.unwrap().path()).collect::<Vec<_>>();
        assert!(left.is_empty(), "a copy is left on the host: {left:?}");
        ran("s68", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn missing_outside_and_obstructed_paths_are_distinguished() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        std::fs::write(tool.work().join("file"), "new").unwrap();
        assert_eq!(copy(tool, "copy_in", &name, "/etc/passwd", "/tmp/x").await["details"]["rule"], "copy.denied");
        assert_eq!(copy(tool, "copy_in", &name, "/srv", "/tmp/x").await["details"]["rule"], "copy.root");
        assert_eq!(copy(tool, "copy_in", &name, "missing", "/tmp/x").await["code"], "path_not_found");
        assert_eq!(copy(tool, "copy_out", &name, "x", "/missing").await["code"], "path_not_found");
        assert_eq!(copy(tool, "copy_out", &name, "missing/x", "/etc/passwd").await["code"], "path_not_found");
        assert_eq!(copy(tool, "copy_in", &name, "file", "file").await["success"], true);
        let call = json!({ "operation": "copy_in", "container": name, "host_path": "file", "container_path": "file", "overwrite": false });
        assert_eq!(tool.call(call).await["code"], "path_exists");
        let call = json!({ "operation": "copy_out", "container": name, "host_path": "file", "container_path": "file", "overwrite": false });
        assert_eq!(tool.call(call).await["code"], "path_exists");
        assert_eq!(std::fs::read_to_string(tool.work().join("file")).unwrap(), "new");
    })
    .await;
}

/// A copy out that is killed while it writes. It leaves a temporary file next to the target.
async fn killed_copy(tool: &Tool<'_>, container: &str) -> bool {
    let left = || std::fs::read_dir(tool.work()).unwrap().any(|it| it.unwrap().file_name().to_str() != Some("small"));
    let target = format!("{container}:/tmp/large");
    let mut copying = tool.command(["cp", &target, "./"]).spawn().unwrap();
    eventually("the copy writes beside its target", Duration::from_secs(60), async || {
        left() || copying.try_wait().unwrap().is_some()
    })
    .await;
    copying.kill().await.unwrap();
    left() && !tool.work().join("large").exists()
}

#[tokio::test]
async fn leftovers_of_a_killed_copy_are_removed_by_the_next_copy_and_by_prune() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let many = "mkdir /tmp/large; i=0; while [ $i -lt 4000 ]; do echo $i > /tmp/large/$i; i=$((i + 1)); done; echo x > /tmp/small";
        tool.prints(&name, many).await;
        for by_prune in [false, true] {
            // It may have been done before it could be killed.
            for _ in 0..10 {
                let _ = std::fs::remove_dir_all(tool.work().join("large"));
                if killed_copy(tool, &name).await {
                    break;
                }
            }
            let names = || {
                let entries = std::fs::read_dir(tool.work()).unwrap();
                entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
            };
            let temporary = names().into_iter().find(|it| it.starts_with(".coracle-")).expect("a copy was killed");
            if by_prune {
                let call = json!({ "operation": "prune", "kinds": ["temporary"], "dry_run": false });
                let pruned = tool.call(call).await;
                let path = tool.work().canonicalize().unwrap().join(&temporary);
                let item = pruned["items"].as_array().unwrap().iter().find(|it| it["name"] == path.to_str().unwrap());
                assert_eq!(item.unwrap_or_else(|| panic!("{pruned:#}"))["removed"], true, "{pruned:#}");
            } else {
                let copied = copy(tool, "copy_out", &name, "small", "/tmp/small").await;
                assert_eq!(copied["success"], true, "{copied:#}");
            }
            assert!(!names().contains(&temporary), "{temporary} stays");
        }
    })
    .await;
}

#[tokio::test]
async fn a_file_in_the_way_of_a_directory_is_answered_by_a_hint_that_helps() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        std::fs::create_dir(tool.work().join("dir")).unwrap();
        std::fs::write(tool.work().join("file"), "x").unwrap();
        tool.prints(&name, "mkdir -p there/file; echo x > there/dir").await;
        for (operation, host, inside) in
            [("copy_in", "file", "there"), ("copy_in", "dir", "there"), ("copy_out", "file", "there/file")]
        {
            let answer = copy(tool, operation, &name, host, inside).await;
            assert_eq!(answer["code"], "path_exists", "{answer:#}");
            let hint = answer["hint"].as_str().unwrap();
            assert!(!hint.contains("overwrite") && hint.contains("another path"), "{hint}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_copy_without_overwrite_replaces_no_file_of_any_name() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let tree = tool.work().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        std::fs::write(tree.join("a/b/two\nlines"), "new").unwrap();
        tool.prints(&name, "mkdir -p tree/a/b && printf old > 'tree/a/b/two\nlines'").await;
        let call = json!({ "operation": "copy_in", "container": name, "host_path": "tree", "container_path": ".",
            "overwrite": false });
        assert_eq!(tool.call(call.clone()).await["success"], false);
        assert_eq!(tool.prints(&name, "cat tree/a/b/*").await, "old");
        tool.prints(&name, "rm -r tree/a/b && touch tree/a/c").await;
        std::fs::remove_file(tree.join("a/b/two\nlines")).unwrap();
        std::fs::write(tree.join("a/b/one"), "new").unwrap();
        let merged = tool.call(call).await;
        assert_eq!(merged["success"], true, "{merged:#}");
        assert_eq!(tool.prints(&name, "ls tree/a && cat tree/a/b/one").await, "b\nc\nnew");
    })
    .await;
}

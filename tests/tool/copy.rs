//! Files in and out (containers.md 11).

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use serde_json::json;

use super::{Tool, with_engine};
use crate::engines::ran;

async fn copy(tool: &Tool<'_>, operation: &str, container: &str, host: &str, inside: &str) -> serde_json::Value {
    let call = json!({ "operation": operation, "container": container, "host_path": host, "container_path": inside });
    tool.call(call).await
}

#[tokio::test]
async fn s68_trees_come_back_equal_and_hostile_ones_stay_in_their_target() {
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
async fn paths_that_are_missing_outside_or_in_the_way_are_told_apart() {
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

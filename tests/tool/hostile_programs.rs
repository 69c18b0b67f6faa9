//! What an agent puts in the place of a container's programs runs only as that agent, whatever is called afterwards; and no
//! file of root's or with a set-id bit appears in a directory of the host.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use coracle_types::random_hex;
use serde_json::{Value, json};

use super::{Tool, with_engine};
use crate::engines::{LABEL, is_root};

/// Replaces each program: records who ran it, tries to leave a set-id copy of a shell, and then runs the original.
const REPLACEMENT: &str = r#"#!/bin/busybox sh
uid=$(/bin/busybox id -u)
/bin/busybox touch "/workspace/ran-as-$uid" 2>/dev/null
/bin/busybox cp /bin/busybox "/workspace/shell-$uid" 2>/dev/null
/bin/busybox chown 0:0 "/workspace/shell-$uid" 2>/dev/null
/bin/busybox chmod 6755 "/workspace/shell-$uid" 2>/dev/null
exec /bin/busybox "${0##*/}" "$@"
"#;

/// Programs that Coracle or an image's set-up would start.
const PROGRAMS: [&str; 14] =
    ["sh", "ash", "cat", "chmod", "chown", "cp", "env", "id", "ls", "mkdir", "rm", "stat", "tar", "test"];

/// As the exec user, in a directory of the host and in the container's own files.
const LEAVES_SET_ID: &str = r#"for dir in /workspace /tmp; do
  cp /bin/busybox $dir/mine; chmod 6755 $dir/mine; chmod u+s,g+s $dir/mine
done
cp -p /tmp/mine /workspace/copied; mv /tmp/mine /workspace/moved; mkdir /workspace/dir; chmod 2777 /workspace/dir
tar -c -C /workspace mine | tar -x -p -C /workspace/dir; :"#;

/// Finds set-id bits and wrongly root-owned files below a directory.
fn dangerous(dir: &Path, known: &BTreeSet<PathBuf>) -> Vec<String> {
    let (mut found, mut left) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(next) = left.pop() {
        for path in std::fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()) {
            let meta = path.symlink_metadata().unwrap();
            let is_of_root = meta.uid() == 0 && !known.contains(&path);
            if !meta.is_symlink() && meta.mode() & 0o6000 != 0 || is_of_root {
                found.push(format!("{} {}:{:o}", path.display(), meta.uid(), meta.mode()));
            }
            if meta.is_dir() {
                left.push(path);
            }
        }
    }
    found
}

async fn act(tool: &Tool<'_>, operation: &str, more: Value) -> Value {
    let mut call = json!({ "operation": operation });
    super::merge(call.as_object_mut().unwrap(), more);
    tool.call(call).await
}

/// The directory is that of the exec user, who is not root.
async fn bound(tool: &Tool<'_>, more: Value) -> Value {
    let mut call = json!({ "mount_cwd": true });
    if is_root() {
        // The image has no account of that number.
        chown(tool.work(), Some(1234), Some(1234)).unwrap();
        call["user"] = json!("1234:1234");
    }
    super::merge(call.as_object_mut().unwrap(), more);
    tool.create(call).await
}

async fn replace_programs(tool: &Tool<'_>, container: &str) {
    for program in PROGRAMS {
        let into = format!("/bin/{program}");
        let call = json!({ "container": container, "host_path": "evil", "container_path": into });
        // The first of them that is there replaces the shell; each later copy would run it.
        let copied = act(tool, "copy_in", call).await;
        assert_eq!(copied["success"], true, "{copied:#}");
    }
}

async fn use_everything(tool: &Tool<'_>, container: &str) {
    let copy = |host: &str, inside: &str, overwrite: bool| json!({ "container": container, "host_path": host, "container_path": inside, "overwrite": overwrite });
    for (operation, request) in [
        ("copy_in", copy("plain", "/tmp/t", true)),
        ("copy_in", copy("plain", "/tmp/t", false)),
        ("copy_in", copy("tree", "/new/place/", true)),
        ("copy_in", copy("tree", "/new/place/", false)),
        ("copy_in", copy("set-id", "/workspace/copied-in", true)),
        ("copy_out", copy("out", "/tmp/t", true)),
        ("copy_out", copy("out", "/missing", true)),
        ("status", json!({ "container": container, "health_check": true })),
        ("wait_healthy", json!({ "container": container, "port": 9, "retries": 1 })),
        ("wait_healthy", json!({ "container": container, "health_command": "true", "retries": 1 })),
        ("wait_healthy", json!({ "container": container, "health_check": true, "retries": 1 })),
        ("exec", json!({ "container": container, "command": LEAVES_SET_ID })),
        ("exec", json!({ "container": container, "command": "id", "as_root": true })),
        ("list", json!({})),
        ("jobs", json!({ "container": container })),
    ] {
        act(tool, operation, request).await;
    }
}

#[tokio::test]
async fn replaced_programs_never_run_as_root_and_leave_nothing_set_id_on_the_host() {
    with_engine("[security]\nallow_root = false\n", async |tool| {
        let work = tool.work();
        std::fs::write(work.join("evil"), REPLACEMENT).unwrap();
        std::fs::write(work.join("plain"), "x").unwrap();
        std::fs::create_dir_all(work.join("tree/below")).unwrap();
        std::fs::write(work.join("tree/below/file"), "x").unwrap();
        std::fs::write(work.join("set-id"), "x").unwrap();
        std::fs::set_permissions(work.join("evil"), PermissionsExt::from_mode(0o755)).unwrap();
        let known: BTreeSet<_> = ["evil", "plain", "tree", "tree/below", "tree/below/file", "set-id", "out"]
            .into_iter()
            .map(|name| work.join(name))
            .collect();
        let assert_clean = |after: &str| {
            let outside = work.join("set-id");
            std::fs::set_permissions(&outside, PermissionsExt::from_mode(0o644)).unwrap();
            assert_eq!(dangerous(&work, &known), Vec::<String>::new(), "after {after}");
            assert!(!work.join("ran-as-0").exists(), "root ran a replaced program after {after}");
            std::fs::set_permissions(&outside, PermissionsExt::from_mode(0o4755)).unwrap();
        };
        let made = bound(tool, json!({})).await;
        assert_eq!(made["success"], true, "{made:#}");
        let name = made["container"].as_str().unwrap();
        // In the container's own files such a bit may be set, and then it is in a snapshot.
        tool.prints(name, "cp /bin/busybox /tmp/own && chmod 6755 /tmp/own").await;
        replace_programs(tool, name).await;
        use_everything(tool, name).await;
        assert_clean("a session");
        let label = tool.case.label().1;
        let snapshot = format!("hostile-{}", random_hex::<4>());
        act(tool, "snapshot", json!({ "container": name, "name": snapshot })).await;
        let main = json!(["/bin/sh", "-c", LEAVES_SET_ID]);
        let restored = json!({ "snapshot": snapshot, "mount_cwd": true, "main": main, "labels": { LABEL: label } });
        for (operation, request) in [("restore", restored), ("fork", json!({ "container": name, "mount_cwd": true }))] {
            let copied = act(tool, operation, request).await;
            if let Some(copy) = copied["container"].as_str().filter(|_| copied["success"] == true) {
                act(tool, "exec", json!({ "container": copy, "command": "cp -p /tmp/own /workspace/own" })).await;
                use_everything(tool, copy).await;
                act(tool, "destroy", json!({ "container": copy })).await;
            }
            assert_clean(operation);
        }
        let by_main = bound(tool, json!({ "main": main })).await;
        assert_eq!(by_main["success"], true, "{by_main:#}");
        act(tool, "destroy", json!({ "container": by_main["container"] })).await;
        assert_clean("a main program");
        let destroyed = act(tool, "destroy", json!({ "container": name })).await;
        assert_eq!(destroyed["success"], true, "{destroyed:#}");
        assert_clean("the end");
        assert!(work.join("out").exists(), "a copy out came back");
        act(tool, "snapshot_delete", json!({ "snapshot": snapshot })).await;
    })
    .await;
}

#[tokio::test]
async fn without_a_guest_nothing_of_the_image_runs_as_root_either() {
    with_engine("guest = \"never\"\n[security]\nallow_root = false\n", async |tool| {
        let work = tool.work();
        std::fs::write(work.join("evil"), REPLACEMENT).unwrap();
        std::fs::write(work.join("plain"), "x").unwrap();
        std::fs::set_permissions(work.join("evil"), PermissionsExt::from_mode(0o755)).unwrap();
        let made = bound(tool, json!({})).await;
        assert_eq!(made["success"], true, "{made:#}");
        let name = made["container"].as_str().unwrap();
        assert_eq!(tool.prints(name, "touch ~/x && echo $HOME && pwd").await.lines().count(), 2);
        replace_programs(tool, name).await;
        let copy = |operation: &str, host: &str, inside: &str, overwrite: bool| {
            json!({ "operation": operation, "container": name, "host_path": host, "container_path": inside,
                "overwrite": overwrite })
        };
        let copied = tool.call(copy("copy_in", "plain", "/tmp/t", true)).await;
        assert_eq!(copied["success"], true, "{copied:#}");
        assert!(!work.join("ran-as-0").exists(), "root ran a replaced program for a copy");
        // Without running a program it is unknown whether the file exists, so nothing is replaced by mistake.
        let there = tool.call(copy("copy_in", "plain", "/tmp/t", false)).await;
        assert_eq!(there["code"], "path_exists", "{there:#}");
        let unknown = tool.call(copy("copy_in", "plain", "/tmp/other", false)).await;
        assert_eq!((&unknown["code"], &unknown["details"]["capability"]), (&"unsupported".into(), &"guest".into()));
        assert_eq!(tool.call(copy("copy_out", "out", "/tmp/t", true)).await["success"], true);
        assert_eq!(tool.call(copy("copy_out", "none", "/missing", true)).await["success"], false);
        act(tool, "wait_healthy", json!({ "container": name, "port": 9, "retries": 1 })).await;
        assert!(!work.join("ran-as-0").exists(), "root ran a replaced program");
        let destroyed = act(tool, "destroy", json!({ "container": name })).await;
        assert_eq!(destroyed["success"], true, "{destroyed:#}");
        assert!(!work.join("ran-as-0").exists(), "root ran a replaced program when its container was removed");
    })
    .await;
}

//! Changes by a container in a bound directory.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use coracle_types::EngineKind;
use serde_json::json;

use super::{Tool, with_engine};
use crate::engines::{is_root, ran};

/// Owner, group and mode of one entry.
type Owned = (u32, u32, u32);

/// Everything below a directory that may be looked at, and the directory.
fn owned(dir: &Path) -> BTreeMap<PathBuf, Owned> {
    let (mut found, mut paths) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(path) = paths.pop() {
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            // A directory that its owner cannot read is compared without its content.
            paths.extend(std::fs::read_dir(&path).into_iter().flatten().map(|it| it.unwrap().path()));
        }
        found.insert(path, (meta.uid(), meta.gid(), meta.mode()));
    }
    found
}

/// Hard and symbolic links, also dangling ones and ones that lead out, and unusual modes.
fn plant(dir: &Path, outside: &Path) {
    for (name, mode) in [("closed", 0o000), ("passable", 0o711), ("sticky", 0o1777), ("shared", 0o2775)] {
        std::fs::create_dir(dir.join(name)).unwrap();
        std::fs::write(dir.join(name).join("inside"), "x").unwrap();
        std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    for (name, mode) in [("none", 0o000), ("read", 0o400), ("run", 0o755), ("all", 0o666), ("others", 0o007)] {
        std::fs::write(dir.join(name), "x").unwrap();
        std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    std::fs::hard_link(outside, dir.join("hard")).unwrap();
    for (name, target) in [("soft", outside), ("dangling", Path::new("/nowhere")), ("up", Path::new(".."))] {
        symlink(target, dir.join(name)).unwrap();
    }
}

/// Files of others: root may give them away, and without root an engine that maps ids can.
async fn give_away(tool: &Tool<'_>) {
    let files = ["theirs", "linked"].map(|it| tool.work().join(it));
    std::fs::write(&files[0], "x").unwrap();
    symlink("theirs", &files[1]).unwrap();
    if is_root() {
        files.iter().for_each(|it| lchown(it, Some(12_345), Some(54_321)).unwrap());
    } else if tool.case.is_rootless() {
        let files = files.each_ref().map(|it| it.to_str().unwrap());
        if tool.case.engine() == EngineKind::Podman {
            assert!(tool.engine(&["unshare", "chown", "--no-dereference", "5:6", files[0], files[1]]).await.0);
        }
    }
}

#[tokio::test]
async fn s21_a_bound_tree_is_unchanged_and_new_files_belong_to_the_user() {
    with_engine("", async |tool| {
        let outside = tool.home().join("outside");
        std::fs::write(&outside, "x").unwrap();
        plant(&tool.work(), &outside);
        give_away(tool).await;
        let before = (owned(&tool.work()), owned(&outside));
        let setup = json!(["find /workspace | wc -l", "touch /root/made && chown 7:7 /root/made"]);
        let answer = tool.create(json!({ "mount_cwd": true, "setup_commands": setup })).await;
        assert_eq!((&answer["success"], &answer["provisioning_ok"]), (&true.into(), &true.into()), "{answer:#}");
        let name = answer["container"].as_str().unwrap();
        tool.prints(name, "touch made passable/made && mkdir dir").await;
        assert_eq!(tool.call(json!({ "operation": "destroy", "container": name })).await["success"], true);

        let mut after = owned(&tool.work());
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        for made in ["made", "passable/made", "dir"] {
            let (owner, group, _) = after.remove(&tool.work().join(made)).unwrap();
            assert_eq!((owner, group), (uid, gid), "{made}");
        }
        assert_eq!((after, owned(&outside)), before);
        // Otherwise a user could not remove the temporary files.
        std::fs::set_permissions(tool.work().join("closed"), PermissionsExt::from_mode(0o700)).unwrap();
        ran("s21", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn read_only_paths_of_a_bound_repository_are_reported_before_and_after_a_command_fails_on_one() {
    with_engine("", async |tool| {
        std::fs::create_dir_all(tool.work().join(".git/hooks")).unwrap();
        std::fs::write(tool.work().join(".git/config"), "[core]\n").unwrap();
        let answer = tool.create(json!({ "mount_cwd": true })).await;
        let steps = answer["provisioning_report"].as_array().unwrap();
        let workspace = steps.iter().find(|it| it["name"] == "workspace").unwrap();
        let item = &workspace["items"][0];
        assert!(item["paths"].as_array().unwrap().contains(&".git/config".into()), "{workspace:#}");
        assert!(item["hint"].as_str().unwrap().contains("git config --global"), "{workspace:#}");

        let name = answer["container"].as_str().unwrap();
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        assert!(status["read_only_paths"].as_array().unwrap().contains(&".git/config".into()), "{status:#}");

        // As git does: a new file in place of the old one.
        let exec = |command: &str| json!({ "operation": "exec", "container": name, "command": command });
        let busy = tool.call(exec("echo x > .git/new && mv -f .git/new .git/config")).await;
        assert_ne!(busy["exit_code"], 0, "{busy:#}");
        assert_eq!(busy["warnings"][0]["code"], "protected_path", "{busy:#}");
        let other = tool.call(exec("echo 'no such thing' >&2; exit 3")).await;
        assert!(other.get("warnings").is_none_or(|it| it == &json!([])), "{other:#}");
    })
    .await;
}

//! Files that a container leaves in a directory of the user.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use serde_json::{Value, json};

use super::person::warnings;
use super::{Tool, with_engine, with_rootful_engine, with_tool};
use crate::engines::{is_root, ran, skip};

fn repository(work: &Path) {
    std::fs::create_dir_all(work.join(".git/hooks")).unwrap();
    std::fs::write(work.join(".git/config"), "[core]\n").unwrap();
    std::fs::write(work.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::create_dir(work.join(".vscode")).unwrap();
}

/// Paths below the working directory, with their findings.
fn review(tool: &Tool<'_>, answer: &Value) -> Vec<(String, String)> {
    let listed = answer["review"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    let work = tool.work().canonicalize().unwrap();
    let below = |it: &Value| Path::new(it["path"].as_str().unwrap()).strip_prefix(&work).unwrap().display().to_string();
    listed.iter().map(|it| (below(it), it["change"].as_str().unwrap().to_owned())).collect()
}

fn is(path: &str, change: &str) -> (String, String) {
    (path.to_owned(), change.to_owned())
}

#[tokio::test]
async fn s25_protected_paths_are_unchanged_and_new_files_are_reviewed() {
    with_engine("", async |tool| {
        repository(&tool.work());
        // It existed before, so no container changed it.
        std::fs::write(tool.work().join(".gitattributes"), "* text\n").unwrap();
        let name = tool.created(json!({ "mount_cwd": true })).await;
        for refused in
            ["echo x >>.git/config", "echo x >.git/hooks/pre-commit", "mv .git away", "rm -r .vscode && mkdir .vscode"]
        {
            let answer = tool.exec(&name, refused).await;
            assert_ne!(answer["exit_code"], 0, "{refused}: {answer:#}");
        }
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        assert_eq!((review(tool, &status), warnings(&status)), (vec![], vec![]), "{status:#}");
        tool.prints(&name, "echo x >.envrc; mkdir -p sub/.git; ln -s ../../out sub/link; echo x >s; chmod 6755 s")
            .await;
        let root = json!({ "operation": "exec", "container": name, "as_root": true,
            "command": "cp /bin/busybox tool && chmod 4755 tool" });
        assert_eq!(tool.call(root).await["exit_code"], 0);
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        assert_eq!(review(tool, &status), [is(".envrc", "new")], "{status:#}");
        assert_eq!(warnings(&status), ["review"]);
        // A set-id bit that the filter of commands did not prevent.
        let past = tool.work().join("sub/past");
        std::fs::write(&past, "x").unwrap();
        if is_root() {
            chown(&past, Some(0), Some(0)).unwrap();
        }
        std::fs::set_permissions(&past, PermissionsExt::from_mode(0o4755)).unwrap();
        let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
        let found = review(tool, &destroyed);
        let mut expected = vec![is(".envrc", "new"), is("sub/.git", "repository"), is("sub/link", "link")];
        if is_root() {
            expected.push(is("sub/past", "setuid"));
            for file in ["s", "tool", "sub/past"] {
                let mode = std::fs::metadata(tool.work().join(file)).unwrap().permissions().mode();
                assert_eq!(mode & 0o6000, 0, "{file}: {mode:o}");
            }
        }
        for finding in expected {
            assert!(found.contains(&finding), "{finding:?}: {destroyed:#}");
        }
        assert!(!found.iter().any(|it| it.0.starts_with(".git") || it.0 == "s"), "{found:?}");
        assert_eq!(warnings(&destroyed), ["review"]);
        ran("s25", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn set_id_bits_from_provisioning_are_cleared_and_reported_from_then_on() {
    with_rootful_engine("", async |tool| {
        if !is_root() {
            return skip(coracle_skips::NEEDS_ROOT);
        }
        let work = tool.work();
        let waits = "touch began; while ! test -e go; do sleep 0.05; done";
        let creating = tool.call(json!({ "operation": "create", "mount_cwd": true, "setup_commands": [waits] }));
        let planting = async {
            while !work.join("began").exists() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            std::fs::write(work.join("planted"), "x").unwrap();
            chown(work.join("planted"), Some(0), Some(0)).unwrap();
            std::fs::set_permissions(work.join("planted"), PermissionsExt::from_mode(0o6755)).unwrap();
            std::fs::write(work.join("go"), "").unwrap();
        };
        let (created, ()) = tokio::join!(creating, planting);
        let mode = std::fs::metadata(work.join("planted")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{created:#}");
        assert!(warnings(&created).contains(&"review"), "{created:#}");
        let name = created["container"].as_str().unwrap();
        for operation in ["status", "destroy"] {
            let reported = tool.call(json!({ "operation": operation, "container": name })).await;
            assert_eq!(review(tool, &reported), [is("planted", "setuid")], "{reported:#}");
        }
    })
    .await;
}

#[tokio::test]
async fn each_git_file_in_the_tree_is_read_only() {
    with_engine("", async |tool| {
        let work = tool.work().canonicalize().unwrap();
        repository(&work);
        std::fs::create_dir_all(work.join("trees/one/src")).unwrap();
        std::fs::write(work.join("trees/one/.git"), "gitdir: ../../.git/worktrees/one\n").unwrap();
        std::fs::create_dir_all(work.join(".git/worktrees/one")).unwrap();
        let reported = format!("{}\n", work.join("trees/one/.git").display());
        std::fs::write(work.join(".git/worktrees/one/gitdir"), reported).unwrap();
        let name = tool.created(json!({ "mount_cwd": true })).await;
        for refused in [
            "echo x >>trees/one/.git",
            "rm trees/one/.git",
            "mv trees/one/.git trees/one/was",
            "mv trees/one trees/was",
            "mv trees was",
        ] {
            let answer = tool.exec(&name, refused).await;
            assert_ne!(answer["exit_code"], 0, "{refused}: {answer:#}");
        }
        tool.prints(&name, "echo x >trees/one/src/file && cat trees/one/.git").await;
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        assert_eq!((review(tool, &status), warnings(&status)), (vec![], vec![]), "{status:#}");
        // Changes by the user are noticed.
        std::fs::write(work.join("trees/one/.git"), "gitdir: elsewhere\n").unwrap();
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        assert_eq!(review(tool, &status), [is("trees/one/.git", "changed")], "{status:#}");
        tool.call(json!({ "operation": "destroy", "container": name })).await;
        // A tree that is itself a worktree.
        std::fs::remove_dir_all(work.join(".git")).unwrap();
        std::fs::write(work.join(".git"), "gitdir: /elsewhere/.git/worktrees/w\n").unwrap();
        let name = tool.created(json!({ "mount_cwd": true })).await;
        for refused in ["echo x >.git", "rm .git", "mv .git was"] {
            let answer = tool.exec(&name, refused).await;
            assert_ne!(answer["exit_code"], 0, "{refused}: {answer:#}");
        }
    })
    .await;
}

#[tokio::test]
async fn changes_from_the_host_are_reported_as_changed_or_replaced() {
    with_tool("", async |tool| {
        repository(&tool.work());
        std::fs::write(tool.work().join(".envrc"), "a").unwrap();
        std::fs::write(tool.work().join(".mcp.json"), "a").unwrap();
        // As long as it is open, no other file gets its number.
        let _was = std::fs::File::open(tool.work().join(".mcp.json")).unwrap();
        let name = tool.created(json!({ "mount_cwd": true })).await;
        let status = async || tool.call(json!({ "operation": "status", "container": name })).await;
        assert_eq!(review(tool, &status().await), []);
        std::fs::write(tool.work().join(".envrc"), "b").unwrap();
        std::fs::write(tool.work().join("new"), "a").unwrap();
        std::fs::rename(tool.work().join("new"), tool.work().join(".mcp.json")).unwrap();
        assert_eq!(review(tool, &status().await), [is(".envrc", "changed")], "the same content is the same");
        std::fs::write(tool.work().join("new"), "b").unwrap();
        std::fs::rename(tool.work().join("new"), tool.work().join(".mcp.json")).unwrap();
        let both = [is(".envrc", "changed"), is(".mcp.json", "replaced")];
        assert_eq!(review(tool, &status().await), both);
        let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
        assert_eq!(review(tool, &destroyed), both, "{destroyed:#}");
    })
    .await;
}

#[tokio::test]
async fn without_a_directory_of_the_host_there_is_nothing_to_review() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
        assert_eq!((review(tool, &destroyed), warnings(&destroyed)), (vec![], vec![]), "{destroyed:#}");
    })
    .await;
}

#[tokio::test]
async fn the_search_stops_at_its_bounds_reports_that_and_lists_new_files() {
    with_engine("", async |tool| {
        // Sparse files with more bytes than are compared.
        let large = tool.work().join(".vscode");
        std::fs::create_dir(&large).unwrap();
        for number in 0..600 {
            std::fs::File::create(large.join(number.to_string())).unwrap().set_len(1 << 20).unwrap();
        }
        let name = tool.created(json!({ "mount_cwd": true })).await;
        tool.prints(&name, "echo x >.envrc; mkdir -p sub/.git; echo x >sub/.git/config").await;
        let is_reported_as_cut = |answer: &Value| {
            let warnings = answer["warnings"].as_array().unwrap();
            let is_cut = |it: &Value| it["message"].as_str().unwrap().contains("not everything could be checked");
            assert!(warnings.iter().any(|it| it["code"] == "review" && is_cut(it)), "{answer:#}");
        };
        let began = std::time::Instant::now();
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        is_reported_as_cut(&status);
        assert_eq!(review(tool, &status), [is(".envrc", "new")], "{status:#}");
        let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
        is_reported_as_cut(&destroyed);
        assert!(review(tool, &destroyed).contains(&is("sub/.git", "repository")), "{destroyed:#}");
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
    })
    .await;
}

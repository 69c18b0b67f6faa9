//! Directories of the host in a workspace, and the way back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Agent, with_agent, with_real_agent};
use crate::engines::{is_root, ran, skip};
use crate::tool::saved::Disk;

/// A directory `p` of the working directory, copied in.
const COPIED: &str = "[workspace]\n[[workspace.mounts]]\nhost_path = \"p\"\n";

impl Agent<'_> {
    fn host(&self, path: &str) -> PathBuf {
        self.tool.work().join(path)
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        put(&self.host(path), content, 0o644);
    }

    fn has(&self, path: &str) -> String {
        std::fs::read_to_string(self.host(path)).unwrap()
    }

    async fn apply(&self, protected: bool) -> Value {
        answer(coracle_prepare::session_tools::apply(&self.process.context, protected).await)
    }

    async fn diff(&self) -> Value {
        answer(coracle_prepare::session_tools::diff(&self.process.context).await)
    }

    async fn export(&self, file: &str) -> Value {
        answer(coracle_prepare::session_tools::export(&self.process.context, file).await)
    }

    /// Makes the call that creates the workspace, which has to fail and leave nothing. Returns its answer.
    async fn refused(&self) -> Value {
        let refused = self.call("ls", json!({})).await;
        assert_eq!(refused["success"], false, "{refused:#}");
        assert_eq!((self.container("workspace"), self.tool.records().len()), (None, 0), "{refused:#}");
        refused
    }
}

fn answer(done: Result<impl serde::Serialize, coracle_context::Failure>) -> Value {
    match done {
        Ok(done) => {
            let mut answer = serde_json::to_value(done).unwrap();
            answer["success"] = true.into();
            answer
        }
        Err(failure) => failure.answer(None).into(),
    }
}

fn put(path: &Path, content: impl AsRef<[u8]>, mode: u32) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn paths(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|it| it["path"].as_str()).collect()
}

#[tokio::test]
async fn w13_files_that_match_the_patterns_are_copied_byte_for_byte() {
    let config = format!("{COPIED}include_glob = [\"**/*.py\", \" \"]\nexclude_glob = [\"t/**\"]\n");
    with_agent(&config, async |agent| {
        let bytes: Vec<u8> = (0..=255_u8).cycle().take(9 << 20).collect();
        put(&agent.host("p/a.py"), "print(1)\r\n\u{e4}", 0o664);
        put(&agent.host("p/x/a.py"), &bytes, 0o6755);
        put(&agent.host("p/x/new\nline.py"), "n", 0o600);
        put(&agent.host("p/x/locked.py"), "l", 0o444);
        agent.put("p/t/a.py", "left out");
        agent.put("p/a.txt", "not meant");
        put(&agent.host("p/x").join(OsStr::from_bytes(b"\xff.py")), "odd", 0o644);
        let pipe = agent.host("p/pipe.py");
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o644));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
        let found = agent.sh("find . -mindepth 1 | sort; stat -c '%u:%g %a' a.py x/a.py x/locked.py x; cat a.py; sha256sum x/a.py").await;
        let reported = found["stdout"].as_str().unwrap();
        let hash = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&bytes));
        let own = if agent.tool.case.is_real() { "65534:65534".to_owned() } else { owner(reported) };
        let expected = format!(
            "./a.py\n./x\n./x/a.py\n./x/locked.py\n./x/new\nline.py\n{own} 644\n{own} 755\n{own} 444\n{own} 755\nprint(1)\r\n\u{e4}{hash}  x/a.py\n"
        );
        assert_eq!(reported, expected, "{found:#}");
        ran("w13", agent.engine());
    })
    .await;
}

/// On the fake, files belong to the user of the tests.
fn owner(reported: &str) -> String {
    reported.lines().find_map(|it| it.split_once(" 644")).map(|it| it.0.to_owned()).unwrap_or_default()
}

#[tokio::test]
async fn an_apply_on_a_full_disk_changes_nothing() {
    if !is_root() {
        return skip(coracle_skips::NEEDS_ROOT);
    }
    with_agent(COPIED, async |agent| {
        let disk = Disk::at(&agent.host("p"), "256k").await;
        for name in ["a", "gone", "z"] {
            agent.put(&format!("p/{name}"), "before");
        }
        agent.sh("echo after > a; rm gone; mkdir new; head -c 1000000 /dev/zero > new/large; echo after > z").await;
        let refused = agent.apply(false).await;
        assert_eq!(refused["code"], "apply_failed", "{refused:#}");
        assert_eq!((&refused["details"]["path"], &refused["details"]["written"]), (&json!("new/large"), &json!([])));
        for name in ["a", "gone", "z"] {
            assert_eq!(agent.has(&format!("p/{name}")), "before", "{name}");
        }
        assert_eq!(agent.host("p").read_dir().unwrap().count(), 3, "nothing new stays");
        agent.sh("rm -r new").await;
        let applied = agent.apply(false).await;
        assert_eq!(applied["count"], 3, "{applied:#}");
        assert!(agent.has("p/a") == "after\n" && !agent.host("p/gone").exists());
        drop(disk);
    })
    .await;
}

#[tokio::test]
async fn w14_links_are_skipped_or_followed_within_what_is_allowed() {
    with_agent(COPIED, async |agent| {
        agent.put("p/a", "a");
        symlink("/etc/passwd", agent.host("p/link")).unwrap();
        assert_eq!(paths(&agent.value("ls", json!({})).await), ["a"]);
        ran("w14-skipped", agent.engine());
    })
    .await;
    let follow = format!("{COPIED}follow_symlinks = true\n");
    with_agent(&follow, async |agent| {
        agent.put("p/a", "a");
        symlink("/etc/passwd", agent.host("p/link")).unwrap();
        let refused = agent.refused().await;
        assert_eq!(refused["code"], "policy_denied", "{refused:#}");
        assert_eq!(refused["message"], "Host path is outside the allowed roots or missing.");
        assert_eq!(refused["details"]["rule"], "mount.denied", "{refused:#}");
        std::fs::remove_file(agent.host("p/link")).unwrap();
        symlink("../../home/x", agent.host("p/link")).unwrap();
        assert_eq!(agent.refused().await["details"]["rule"], "mount.root");
        std::fs::remove_file(agent.host("p/link")).unwrap();
        // Links that stay inside: relative, absolute, chained, to a directory, dangling, and circular.
        agent.put("other/deep/file", "deep");
        symlink("../other/deep/file", agent.host("p/relative")).unwrap();
        symlink(agent.host("p/relative").canonicalize().unwrap(), agent.host("p/absolute")).unwrap();
        symlink("relative", agent.host("p/chain")).unwrap();
        symlink("../other", agent.host("p/dir")).unwrap();
        symlink("nowhere", agent.host("p/dangling")).unwrap();
        symlink("itself", agent.host("p/itself")).unwrap();
        symlink("..", agent.host("p/up")).unwrap();
        symlink("../..", agent.host("other/deep/circle")).unwrap();
        let found = agent.sh("find . -type f | sort; cat relative absolute chain dir/deep/file; find . -type l").await;
        let reported = found["stdout"].as_str().unwrap();
        assert!(reported.starts_with("./a\n./absolute\n./chain\n"), "{reported}");
        assert!(reported.contains("./dir/deep/file\n") && reported.ends_with("deepdeepdeepdeep"), "{reported}");
        ran("w14-followed", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w14_too_much_is_nothing() {
    with_agent(&format!("{COPIED}max_bytes = 10\n"), async |agent| {
        agent.put("p/a", "12345");
        agent.put("p/b", "123456");
        let refused = agent.refused().await;
        assert_eq!(refused["code"], "mount_too_large", "{refused:#}");
        assert_eq!(refused["message"], "Host mount exceeded the configured byte budget.");
        agent.put("p/b", "12345");
        assert_eq!(paths(&agent.value("ls", json!({})).await), ["a", "b"]);
        ran("w14-budget", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w14_only_what_is_allowed_is_copied() {
    let home = "[workspace]\nroot = \"~/\"\n[[workspace.mounts]]\nhost_path = \"p\"\n";
    with_agent(home, async |agent| {
        let refused = agent.refused().await;
        assert_eq!(refused["message"], "No allowed host roots configured for mounts.", "{refused:#}");
        assert_eq!((&refused["code"], &refused["details"]["rule"]), (&"policy_denied".into(), &"mount.root".into()));
    })
    .await;
    for (path, code, message) in [
        (" ", "mount_invalid", "Host mount path must not be empty."),
        ("missing", "policy_denied", "Host path is outside the allowed roots or missing."),
        ("/etc", "policy_denied", "Host path is outside the allowed roots or missing."),
        ("../home", "policy_denied", "Host path is outside the allowed roots or missing."),
        ("out", "policy_denied", "Host path is outside the allowed roots or missing."),
    ] {
        with_agent(&COPIED.replace("\"p\"", &format!("{path:?}")), async |agent| {
            if agent.tool.case.is_real() {
                return;
            }
            symlink("/usr/share", agent.host("out")).unwrap();
            let refused = agent.refused().await;
            assert_eq!((&refused["code"], &refused["message"]), (&code.into(), &message.into()), "{refused:#}");
        })
        .await;
    }
}

#[tokio::test]
async fn w15_changes_on_both_sides_are_a_conflict_and_nothing_is_written() {
    with_agent(COPIED, async |agent| {
        for name in ["both", "inside", "gone", "kept"] {
            agent.put(&format!("p/{name}"), "old\n");
        }
        agent.sh("printf 'new\\n' >both; printf 'new\\n' >inside; rm gone; echo fresh >fresh").await;
        agent.put("p/both", "mine\n");
        agent.put("p/fresh", "mine\n");
        let refused = agent.apply(false).await;
        assert_eq!(refused["code"], "apply_conflict", "{refused:#}");
        assert_eq!(paths(&refused["details"]["conflicts"]), ["both", "fresh"]);
        let host = ["both", "inside", "gone", "kept", "fresh"].map(|it| agent.has(&format!("p/{it}")));
        assert_eq!(host, ["mine\n", "old\n", "old\n", "old\n", "mine\n"], "nothing is written");
        ran("w15", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn changes_inside_are_shown_and_exported() {
    with_agent(COPIED, async |agent| {
        put(&agent.host("p/src/a.txt"), "one\ntwo\nthree\n", 0o664);
        agent.put("p/run", "#!/bin/sh\n");
        agent.put("p/old/only", "x\n");
        agent.put("p/.git/config", "[core]\n");
        agent.put("p/.git/HEAD", "ref\n");
        agent.put("p/same", "same\n");
        assert_eq!(agent.diff().await["code"], "not_found");
        agent.value("ls", json!({})).await;
        assert_eq!(agent.diff().await["count"], 0);
        let script = "printf 'one\\n2\\nthree\\n' >src/a.txt; chmod 6755 run; rm -r old; mkdir -p n/m; printf 'a\\0b' >n/m/bin; \
                      echo hook >.git/hooks; echo x >>.git/config; ln -s /etc/passwd link; mkfifo pipe; touch same; chmod 4755 n/m/bin";
        agent.sh(script).await;
        let diff = agent.diff().await;
        let all: String = diff["files"].as_array().unwrap().iter().filter_map(|it| it["diff"].as_str()).collect();
        assert!(all.contains("--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"), "{all}");
        assert!(all.contains("Binary files /dev/null and b/n/m/bin differ\n"), "{all}");
        assert!(all.contains("diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"), "{all}");
        assert!(all.contains("deleted file mode 100644\n--- a/old/only\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"), "{all}");
        assert_eq!(paths(&diff["passed_over"]), ["link", "pipe"], "{diff:#}");
        let applied = agent.apply(false).await;
        assert_eq!(applied["success"], true, "{applied:#}");
        assert_eq!(applied["protected"], json!([".git/config", ".git/hooks"]), "{applied:#}");
        let mode = |path: &str| agent.host(path).metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((agent.has("p/src/a.txt").as_str(), mode("p/src/a.txt")), ("one\n2\nthree\n", 0o664));
        assert_eq!((mode("p/run"), mode("p/n/m/bin")), (0o755, 0o755), "set-id bits stay inside");
        assert!(!agent.host("p/old").exists() && !agent.host("p/link").exists() && !agent.host("p/pipe").exists());
        assert!(!agent.host("p/.git/hooks").exists() && agent.has("p/.git/config") == "[core]\n");
        assert_eq!(agent.apply(false).await["count"], 0, "what was brought back is no change any more");
        assert_eq!(agent.apply(true).await["count"], 2);
        assert_eq!(agent.has("p/.git/hooks"), "hook\n");
        assert_eq!(agent.diff().await["count"], 0);
        ran("apply", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn nothing_is_written_through_links_of_either_side() {
    with_agent(COPIED, async |agent| {
        for path in ["p/d/f", "p/e/f", "p/g", "out/f"] {
            agent.put(path, "old\n");
        }
        // Replacements of a directory and of a file by the container stay inside.
        agent.sh("rm -r d; ln -s /etc d; rm g; ln -s /etc/passwd g; echo new >e/f; echo new >e/n").await;
        // And the host's directory in its place is not walked.
        std::fs::rename(agent.host("p/e"), agent.host("p/was")).unwrap();
        symlink(agent.host("out"), agent.host("p/e")).unwrap();
        let refused = agent.apply(false).await;
        assert_eq!(refused["code"], "apply_conflict", "{refused:#}");
        assert_eq!(paths(&refused["details"]["conflicts"]), ["e/f", "e/n"], "{refused:#}");
        std::fs::remove_file(agent.host("p/e")).unwrap();
        std::fs::rename(agent.host("p/was"), agent.host("p/e")).unwrap();
        let applied = agent.apply(false).await;
        assert_eq!(paths(&applied["files"]), ["d/f", "e/f", "e/n"], "{applied:#}");
        assert_eq!(paths(&applied["passed_over"]), ["d", "g"], "{applied:#}");
        assert_eq!(
            (agent.has("p/g"), agent.has("p/e/f"), agent.has("out/f")),
            ("old\n".into(), "new\n".into(), "old\n".into())
        );
        assert_eq!(std::fs::read_dir(agent.host("out")).unwrap().count(), 1);
    })
    .await;
}

#[tokio::test]
async fn all_files_are_packed_and_are_then_nowhere_lost() {
    with_agent(COPIED, async |agent| {
        agent.put("p/a", "a");
        agent.put("p/b", "b");
        agent.sh("echo new >b; echo made >c; ln -s a inside; ln -s /etc/passwd outside").await;
        let exported = agent.export("out.tar").await;
        assert_eq!(
            (&exported["success"], paths(&exported["passed_over"])),
            (&true.into(), vec!["outside"]),
            "{exported:#}"
        );
        let mut listed = tar::Archive::new(std::fs::File::open(agent.host("out.tar")).unwrap());
        let entries = listed.entries().unwrap().map(|it| it.unwrap().path().unwrap().display().to_string());
        let mut names: Vec<String> = entries.collect();
        names.sort_unstable();
        assert_eq!(names, ["workspace/a", "workspace/b", "workspace/c", "workspace/inside"]);
        assert_eq!(agent.export("out.tar").await["code"], "path_exists");
        agent.sh("echo later >d").await;
        let ended = agent.end().await;
        let saved = &ended["saved"][0];
        assert_eq!(
            saved["files"], 2,
            "the later file and the link that stays inside, not what is on the host or was packed: {ended:#?}"
        );
        ran("export", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn a_session_that_changed_nothing_leaves_nothing() {
    with_agent(COPIED, async |agent| {
        agent.put("p/a", "a");
        agent.sh("touch a; cp a b; mv b a").await;
        let ended = agent.end().await;
        assert_eq!(ended["saved"], json!([]), "{ended:#?}");
        let retained =
            agent.tool.state().join("sessions").join(agent.process.context.call.session.as_str()).join("baseline.json");
        assert!(!retained.exists());
    })
    .await;
}

#[tokio::test]
async fn a_volume_that_is_lost_is_filled_again() {
    with_real_agent(COPIED, async |agent| {
        agent.put("p/a", "first");
        agent.value("ls", json!({})).await;
        let id = agent.container("workspace").unwrap();
        let file = agent
            .tool
            .state()
            .join("sessions")
            .join(agent.process.context.call.session.as_str())
            .join("workspace.json");
        let record: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let volume = record["volume"].as_str().unwrap();
        let lose = async || {
            agent.tool.engine(&["rm", "--force", &agent.container("workspace").unwrap_or(id.clone())]).await;
            assert!(agent.tool.engine(&["volume", "rm", volume]).await.0);
        };
        lose().await;
        // A container that cannot be filled does not remain.
        std::fs::rename(agent.host("p"), agent.host("q")).unwrap();
        let refused = agent.call("ls", json!({})).await;
        assert_eq!(refused["code"], "policy_denied", "{refused:#}");
        std::fs::rename(agent.host("q"), agent.host("p")).unwrap();
        agent.put("p/a", "second");
        let read = agent.call("read_file", json!({ "file_path": "a" })).await;
        assert_eq!(read["value"]["content"], "   1 | second", "{read:#}");
        assert_eq!(read["warnings"][0]["code"], "workspace_files_lost", "{read:#}");
        assert_eq!(agent.diff().await["count"], 0);
        ran("refill", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn a_directory_that_is_bound_is_the_hosts_but_for_what_is_protected() {
    let config = "[workspace]\n[[workspace.mounts]]\nhost_path = \"p\"\nmount_path = \"src\"\nmode = \"bind\"\n";
    with_real_agent(config, async |agent| {
        agent.put("p/.git/config", "[core]\n");
        agent.put("p/a", "a\n");
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(agent.host("p"), all.clone()).unwrap();
        std::fs::set_permissions(agent.host("p/.git/config"), all).unwrap();
        agent.value("write_file", json!({ "file_path": "src/new", "content": "new" })).await;
        assert_eq!(agent.has("p/new"), "new");
        let tried = agent.sh("echo x >>src/.git/config; mv src/.git src/gone; ls -A src").await;
        assert!(tried["stdout"].as_str().unwrap().contains(".git\n"), "{tried:#}");
        assert_eq!(agent.has("p/.git/config"), "[core]\n", "{tried:#}");
        assert_eq!(agent.diff().await["count"], 0, "what is there itself is no change");
        let ended = agent.end().await;
        assert_eq!(ended["success"], true, "{ended:#?}");
        assert_eq!(agent.has("p/new"), "new");
        assert!(!agent.host("p/.git/commondir").exists(), "placeholders go with the container");
        ran("bind", agent.engine());
    })
    .await;
}

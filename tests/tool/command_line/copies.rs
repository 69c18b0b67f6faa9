//! `coracle cp`, copies to standard output, and files that a user allows a copy to read.

use serde_json::{Value, json};

use super::{at_a_terminal, prints, text, typed};
use crate::tool::{Tool, with_engine, with_tool};

#[tokio::test]
async fn cp_copies_in_and_out() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        std::fs::write(tool.work().join("x"), "there and back").unwrap();
        prints(tool, &["cp", "./x", &format!("{name}:/tmp/y")]).await;
        assert_eq!(tool.prints(&name, "cat /tmp/y").await, "there and back");
        prints(tool, &["cp", &format!("{name}:/tmp/y"), "./z"]).await;
        assert_eq!(std::fs::read_to_string(tool.work().join("z")).unwrap(), "there and back");
        let retained = typed(tool, &["cp", "--no-overwrite", &format!("{name}:/tmp/y"), "z"]).await;
        assert!(text(&retained.stderr).contains("error[path_exists]"), "{}", text(&retained.stderr));
        let neither = typed(tool, &["cp", "x", "y"]).await;
        assert_eq!(neither.status.code(), Some(2));
        assert!(text(&neither.stderr).contains("neither side names a container"), "{}", text(&neither.stderr));
    })
    .await;
}

#[tokio::test]
async fn copies_preserve_times_of_files_and_directories() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::create_dir_all(tool.work().join("tree/inner")).unwrap();
        std::fs::write(tool.work().join("tree/inner/file"), "").unwrap();
        for path in ["tree/inner/file", "tree/inner", "tree"] {
            std::fs::File::open(tool.work().join(path)).unwrap().set_modified(old).unwrap();
        }
        let copy = async |operation: &str, host: &str| {
            let paths =
                json!({ "operation": operation, "container": name, "host_path": host, "container_path": "tree" });
            let copied = tool.call(paths).await;
            assert_eq!(copied["success"], true, "{copied:#}");
        };
        copy("copy_in", "./tree").await;
        let times = tool.prints(&name, "stat -c %Y tree tree/inner tree/inner/file").await;
        assert_eq!(times, "1000000000\n".repeat(3).trim_end());
        copy("copy_out", "./back").await;
        for path in ["back", "back/inner", "back/inner/file"] {
            assert_eq!(tool.work().join(path).metadata().unwrap().modified().unwrap(), old, "{path}");
        }
    })
    .await;
}

#[tokio::test]
async fn one_file_is_copied_to_standard_output() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, "printf 'a\\0\\377b' > /tmp/bytes").await;
        for words in [vec!["copy-out", &name, "/tmp/bytes", "-"], vec!["cp", &format!("{name}:/tmp/bytes"), "-"]] {
            let output = typed(tool, &words).await;
            assert_eq!((&output.stdout[..], output.status.code()), (&b"a\0\xffb"[..], Some(0)), "{words:?}");
        }
        let directory = typed(tool, &["copy-out", &name, "/tmp", "-"]).await;
        assert_eq!((directory.status.code(), directory.stdout.len()), (Some(1), 0));
        assert!(text(&directory.stderr).contains("only one file"), "{}", text(&directory.stderr));
        assert!(!tool.work().join("-").exists());
        let left = std::fs::read_dir(tool.state().join("scratch")).into_iter().flatten().count();
        assert_eq!(left, 0, "a copy is left");
    })
    .await;
}

/// A file of the user outside the allowed directories.
fn outside(tool: &Tool<'_>) -> String {
    tool.at_home("Downloads/x", "mine");
    tool.home().join("Downloads/x").display().to_string()
}

#[tokio::test]
async fn a_user_can_allow_one_copy_of_a_file_and_an_agent_cannot() {
    with_engine("", async |tool| {
        let (name, file) = (tool.created(json!({})).await, outside(tool));
        let refused = typed(tool, &["copy-in", &name, &file, "/tmp/x"]).await;
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains("--allow"), "{}", text(&refused.stderr));
        prints(tool, &["copy-in", "--allow", &name, &file, "/tmp/x"]).await;
        assert_eq!(tool.prints(&name, "cat /tmp/x").await, "mine");
        let log: Value = serde_json::from_str(&prints(tool, &["audit", "log", "--json"]).await).unwrap();
        let copies = log["acts"].as_array().unwrap().iter().filter(|it| it["operation"] == "copy_in");
        let reported: Vec<_> = copies.map(|it| (it["outcome"].clone(), it["allowed_by"].clone())).collect();
        assert_eq!(reported, [("denied".into(), Value::Null), ("done".into(), "person".into())], "{log:#}");
        // The next copy needs a new confirmation.
        assert_eq!(typed(tool, &["copy-in", &name, &file, "/tmp/x"]).await.status.code(), Some(1));
        let call = json!({ "operation": "copy_in", "container": name, "host_path": file, "container_path": "/tmp/x" });
        assert_eq!(tool.call(call.clone()).await["details"]["rule"], "copy.root");
        let mut call = call;
        call["allow"] = true.into();
        assert_eq!(tool.call(call).await["code"], "unknown_field");
        tool.at_home(".ssh/id_ed25519", "a key");
        let key = tool.home().join(".ssh/id_ed25519").display().to_string();
        let denied = typed(tool, &["copy-in", "--allow", &name, &key, "/tmp/key"]).await;
        assert!(text(&denied.stderr).contains("never shared"), "{}", text(&denied.stderr));
    })
    .await;
}

#[tokio::test]
async fn a_user_at_a_terminal_is_prompted() {
    with_engine("", async |tool| {
        let (name, file) = (tool.created(json!({})).await, outside(tool));
        let words = ["copy-in", &name, &file, "/tmp/x"];
        let (shown, code) = at_a_terminal(tool, &words, "n\n").await;
        assert!(shown.contains("copy anyway? [y/N]") && code == Some(1), "{code:?} {shown}");
        let (shown, code) = at_a_terminal(tool, &words, "y\n").await;
        assert_eq!(code, Some(0), "{shown}");
        assert_eq!(tool.prints(&name, "cat /tmp/x").await, "mine");
    })
    .await;
}

//! The facade for Rust programs, in this process.

use coracle::{Client, ContainerOptions};
use coracle_context::{Code, Frontend, Host, Options};
use coracle_prepare::Process;
use serde_json::json;

use super::{Tool, with_tool};
use crate::engines::{IMAGE, LABEL};

/// A session of this process with the person's directories.
fn client(tool: &Tool<'_>) -> Client {
    if let Some(process) = &tool.library {
        return Client::of_process(process.clone());
    }
    let host = Host::below(&tool.root.path().canonicalize().unwrap());
    let options = Options { config: Some(tool.root.path().join("config.toml")), ..Options::default() };
    Client::of_process(Process::open(host, &options, Frontend::Serve).unwrap())
}

fn options(tool: &Tool<'_>) -> ContainerOptions {
    let label = tool.case.container_label().1;
    ContainerOptions::image(IMAGE).mount_cwd(false).with("labels", json!({ LABEL: label }))
}

#[tokio::test]
async fn a_program_uses_a_container_in_a_few_lines() {
    with_tool("", async |tool| {
        let client = client(tool);
        let c = client.create(options(tool)).await.unwrap();
        let r = c.exec("echo out; echo err >&2; exit 3").await.unwrap();
        assert_eq!((r.exit_code, r.stdout.as_str(), r.stderr.as_str()), (Some(3), "out\n", "err\n"));
        assert!(!r.is_success());
        assert_eq!(c.created()["container"], c.name());
        let r = c.exec_with(json!({ "command": ["cat"], "stdin": "in" })).await.unwrap();
        assert_eq!((r.stdout.as_str(), r.is_success()), ("in", true));
        // Larger than one call takes, and not text.
        let content: Vec<u8> = (0..1_300_000_u32).map(|it| (it % 251) as u8).collect();
        for content in [&content[..], b"short", b""] {
            c.write_file("dir/data", content).await.unwrap();
            assert_eq!(c.read_file("dir/data").await.unwrap(), content);
        }
        let missing = c.read_file("none").await.unwrap_err();
        assert_eq!(missing.code, Code::FileNotFound, "{missing:?}");
        c.write_file("kept", "of the first").await.unwrap();
        let other = client.attach(c.name());
        assert_eq!(other.exec("cat kept").await.unwrap().stdout, "of the first");
        c.destroy().await.unwrap();
        let gone = other.exec("true").await.unwrap_err();
        assert_eq!((gone.code, gone.hint.is_some()), (Code::NotFound, true), "{gone:?}");
        let unknown = client.call("teleport", serde_json::Map::new()).await.unwrap_err();
        assert_eq!(unknown.code, Code::UnknownOperation);
    })
    .await;
}

#[tokio::test]
async fn a_fork_and_a_snapshot_have_the_files() {
    with_tool("", async |tool| {
        let (client, label) = (client(tool), tool.case.container_label().1);
        let c = client.create(options(tool)).await.unwrap();
        c.exec("echo one > file").await.unwrap();
        let labelled = || ContainerOptions::default().with("labels", json!({ LABEL: label }));
        let fork = c.fork(labelled()).await.unwrap();
        assert_eq!(fork.exec("cat file").await.unwrap().stdout, "one\n");
        fork.destroy().await.unwrap();
        let name = format!("rust-{}", coracle_runtime::random_hex::<4>());
        c.snapshot(&name).await.unwrap();
        c.destroy().await.unwrap();
        let again = client.restore(&name, labelled()).await.unwrap();
        assert_eq!(again.exec("cat file").await.unwrap().stdout, "one\n");
        again.destroy().await.unwrap();
        let delete = json!({ "snapshot": name });
        client.call("snapshot_delete", delete.as_object().unwrap().clone()).await.unwrap();
    })
    .await;
}

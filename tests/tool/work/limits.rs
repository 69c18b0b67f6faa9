//! Limits of a workspace in resources and time.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Agent, Person, configured, with_agent};
use crate::engines::ran;
use crate::tool::eventually;

#[tokio::test]
async fn w03_an_unavailable_image_is_not_requested_again_immediately() {
    with_agent("[workspace]\nimage = \"localhost:1/none:1\"\n", async |agent| {
        let failed = agent.call("ls", json!({})).await;
        assert_eq!((&failed["code"], &failed["retryable"]), (&"pull_failed".into(), &true.into()), "{failed:#}");
        let again = agent.call("ls", json!({})).await;
        assert_eq!(again["code"], "pull_backoff", "{again:#}");
        assert!(again["details"]["retry_after_ms"].as_u64().is_some_and(|it| it <= 5000), "{again:#}");
        assert_eq!((agent.container("workspace"), agent.tool.records().len()), (None, 0));
        ran("w03", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn a_workspace_that_holds_more_than_it_may_says_so_until_it_does_not() {
    with_agent("[workspace]\nmax_bytes = \"1m\"\n", async |agent| {
        let full = async |agent: &Agent<'_>| {
            let listed = agent.call("ls", json!({})).await;
            assert_eq!(listed["success"], true, "{listed:#}");
            listed["warnings"].as_array().unwrap().iter().any(|it| it["code"] == "disk_full")
        };
        assert!(!full(agent).await);
        agent.sh("dd if=/dev/zero of=large bs=1024 count=3000 2>&1").await;
        eventually("too much is reported", Duration::from_secs(10), async || full(agent).await).await;
        // A due check happens with the next change.
        eventually("after removal it is no longer reported", Duration::from_secs(10), async || {
            agent.call("rm", json!({ "path": "large" })).await;
            agent.value("write_file", json!({ "file_path": "small", "content": "x", "mode": "overwrite" })).await;
            !full(agent).await
        })
        .await;
        ran("disk_full", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn an_unused_guest_exits_and_the_next_call_continues() {
    let person = Person::new(configured("[workspace]\nlifeline = \"1s\"\n"));
    let check = async |tool: &crate::tool::Tool<'_>| {
        // Each command is a process that is connected for as long as it runs.
        let run = async |name: &str, words: &[&str]| -> Value {
            let words = ["--session", "lone", "workspace", name, "--json"].into_iter().chain(words.iter().copied());
            let output = tool.run(words, b"").await;
            serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {output:?}"))
        };
        let slow = run("shell-execute", &["--", "sh", "-c", "sleep 3; echo kept > a"]).await;
        assert_eq!(slow["value"]["exit_code"], 0, "{slow:#}");
        let record = tool.slot_container("lone", "workspace").unwrap();
        let id = record["id"].as_str().unwrap();
        eventually("the guest leaves", Duration::from_secs(20), async || {
            let format = "{{.State.Status}} {{.State.ExitCode}}";
            tool.engine(&["container", "inspect", "--format", format, id]).await.1 == "exited 75"
        })
        .await;
        let read = run("read-file", &["a"]).await;
        assert_eq!((&read["value"]["content"], &read["workspace"]["generation"]), (&"   1 | kept".into(), &2.into()));
        assert_eq!(read["warnings"][0]["details"]["reason"], "idle", "{read:#}");
        let ended = run("end", &[]).await;
        assert_eq!(ended["success"], true, "{ended:#}");
        ran("lifeline", tool.case.engine());
    };
    person.on_real_engines(check).await;
}

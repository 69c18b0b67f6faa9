//! `coracle logs`.

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::{ended, prints, signalled, started, text, typed};
use crate::tool::{Tool, with_engine};

async fn job(tool: &Tool<'_>, container: &str, command: &str) -> String {
    let call = json!({ "operation": "exec_background", "container": container, "command": command });
    let begun = tool.call(call).await;
    begun["job_id"].as_str().unwrap_or_else(|| panic!("{begun:#}")).to_owned()
}

async fn state(tool: &Tool<'_>, container: &str, job: &str) -> Value {
    tool.call(json!({ "operation": "exec_poll", "container": container, "job_id": job })).await["running"].clone()
}

#[tokio::test]
async fn a_jobs_output_is_followed_to_its_end_as_it_comes() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let id = job(tool, &name, "echo one; printf two; until [ -e /tmp/go ]; do sleep 0.1; done; echo three; exit 5")
            .await;
        let mut child = started(tool, &["logs", &name, "-f"]);
        // Also an incomplete line, such as a prompt.
        let mut begun = [0; 7];
        let mut stdout = child.stdout.take().unwrap();
        let read = tokio::time::timeout(std::time::Duration::from_secs(20), stdout.read_exact(&mut begun)).await;
        read.expect("it is shown while the job runs").unwrap();
        assert_eq!(text(&begun), "one\ntwo");
        tool.prints(&name, "touch /tmp/go").await;
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "three\n");
        assert_eq!(ended(child).await.status.code(), Some(5));
        assert_eq!(prints(tool, &["logs", &name]).await, "one\ntwothree\n");
        assert_eq!(prints(tool, &["logs", &name, &id, "--tail", "1"]).await, "twothree\n");
        assert_eq!(typed(tool, &["logs", &name, "-f", "-n", "0"]).await.status.code(), Some(5));
    })
    .await;
}

#[tokio::test]
async fn an_interrupt_ends_the_following_and_not_the_job() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let id = job(tool, &name, "echo up; exec sleep 300").await;
        let mut child = started(tool, &["logs", "--follow", &name, &id]);
        let mut begun = [0; 3];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut begun).await.unwrap();
        signalled(&child, Signal::INT);
        let output = ended(child).await;
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(130), String::new()));
        assert_eq!(state(tool, &name, &id).await, true);
    })
    .await;
}

#[tokio::test]
async fn without_a_name_the_main_program_is_shown_else_the_newest_job() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let none = typed(tool, &["logs", &name]).await;
        assert_eq!(none.status.code(), Some(1));
        assert!(text(&none.stderr).contains("error[job_not_found]"), "{}", text(&none.stderr));
        let (older, newer) = (job(tool, &name, "echo older").await, job(tool, &name, "echo newer").await);
        let newest = typed(tool, &["logs", &name]).await;
        assert_eq!(text(&newest.stdout), "newer\n");
        assert!(text(&newest.stderr).contains(&format!("job {newer} of 2")), "{}", text(&newest.stderr));
        assert_eq!(prints(tool, &["logs", &name, &older]).await, "older\n");
        let main = tool.created(json!({ "main": ["/bin/sh", "-c", "echo main; sleep 300"] })).await;
        job(tool, &main, "echo other").await;
        let call = json!({ "operation": "job_wait", "container": main, "job_id": "main", "until": "regex",
            "pattern": "main", "offset": 0 });
        assert_eq!(tool.call(call).await["reason"], "regex");
        assert_eq!(prints(tool, &["logs", &main]).await, "main\n");
    })
    .await;
}

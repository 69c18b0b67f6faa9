//! The facade for Rust programs, in this process.

use std::time::Duration;

use coracle::{Client, ContainerOptions, ExecOptions, JobState, Stream, WaitOptions, WaitOutcome};
use coracle_context::{Code, Frontend, Host, Options};
use coracle_prepare::Process;
use futures_util::StreamExt as _;
use serde_json::json;

use super::{Tool, with_tool};
use crate::engines::{IMAGE, LABEL};

/// A session of this process with the user's directories.
fn client(tool: &Tool<'_>) -> Client {
    if let Some(process) = &tool.library {
        return Client::of_process(process.clone());
    }
    let host = Host::below(&tool.root.path().canonicalize().unwrap());
    let options = Options { config: Some(tool.root.path().join("config.toml")), ..Options::default() };
    Client::of_process(Process::open(host, &options, Frontend::Serve).unwrap())
}

fn options(tool: &Tool<'_>) -> ContainerOptions {
    ContainerOptions::image(IMAGE).mount_cwd(false).label(LABEL, &tool.case.container_label().1)
}

#[tokio::test]
async fn a_program_uses_a_container_in_a_few_lines() {
    with_tool("", async |tool| {
        let client = client(tool);
        let c = client.create(options(tool)).await.unwrap();
        let r = c.exec("echo out; echo err >&2; exit 3").await.unwrap();
        assert_eq!((r.exit_code, r.stdout.as_str(), r.stderr.as_str()), (Some(3), "out\n", "err\n"));
        assert!(!r.is_success());
        assert_eq!(c.image(), Some(IMAGE));
        assert!(c.report().is_some_and(coracle::Report::ok), "{:?}", c.report());
        let command = ExecOptions::argv(["sh", "-c", "cat; echo $A $0", "$HOME"]).env("A", "1").stdin("in ");
        let r = c.exec(command).await.unwrap();
        assert_eq!((r.stdout.as_str(), r.is_success()), ("in 1 $HOME\n", true));
        let r = c.exec(["echo", "$HOME"]).await.unwrap();
        assert_eq!(r.stdout, "$HOME\n", "no shell");
        let r = c.exec(ExecOptions::shell("sleep 60").timeout(Duration::from_millis(300))).await.unwrap();
        assert!(r.timed_out && r.duration < Duration::from_secs(30), "{r:?}");
        // Larger than one call accepts, and not text.
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
        let removed = c.destroy().await.unwrap();
        assert!(!removed.already_gone, "{removed:?}");
        let gone = other.exec("true").await.unwrap_err();
        assert_eq!((gone.code, gone.hint.is_some()), (Code::NotFound, true), "{gone:?}");
        let unknown = client.call("teleport", serde_json::Map::new()).await.unwrap_err();
        assert_eq!(unknown.code, Code::UnknownOperation);
    })
    .await;
}

#[tokio::test]
async fn output_is_streamed_and_a_dropped_stream_ends_its_command() {
    with_tool("", async |tool| {
        let c = client(tool).create(options(tool)).await.unwrap();
        let mut stream = c.stream("echo one; until test -e go; do sleep 0.05; done; echo two >&2; exit 3");
        let first = stream.next().await.unwrap();
        assert_eq!((first.stream, &first.bytes[..]), (Stream::Stdout, &b"one\n"[..]), "before the command has ended");
        c.write_file("go", "").await.unwrap();
        let second = stream.next().await.unwrap();
        assert_eq!((second.stream, &second.bytes[..]), (Stream::Stderr, &b"two\n"[..]));
        assert_eq!(stream.next().await, None);
        let result = stream.result().await.unwrap();
        assert_eq!((result.exit_code, result.stdout.as_str()), (Some(3), "one\n"));
        let mut endless = c.stream("echo $$; sleep 600");
        let pid = String::from_utf8(endless.next().await.unwrap().bytes).unwrap();
        drop(endless);
        let gone = format!("while kill -0 {} 2>/dev/null; do sleep 0.05; done", pid.trim());
        let gone = c.exec(ExecOptions::shell(&gone).timeout(Duration::from_secs(20)).as_root()).await.unwrap();
        assert!(gone.is_success(), "{gone:?}");
        let refused = c.stream(ExecOptions::shell("true").workdir("\0")).result().await.unwrap_err();
        assert_eq!(refused.code, Code::InvalidInput, "{refused:?}");
        c.destroy().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_job_is_waited_for_read_and_cancelled() {
    with_tool("", async |tool| {
        let client = client(tool);
        let c = client.create(options(tool)).await.unwrap();
        let job = c.start("echo starting; echo ready on 80; sleep 600").await.unwrap();
        let ready = job.wait_for(WaitOptions::pattern("ready on [0-9]+").from_offset(0)).await.unwrap();
        assert_eq!((ready.reason, ready.line.as_deref()), (WaitOutcome::Regex, Some("ready on 80")), "{ready:?}");
        let late = job.wait_for(WaitOptions::pattern("never").timeout(Duration::from_millis(200))).await.unwrap();
        assert_eq!((late.reason, late.state), (WaitOutcome::Timeout, JobState::Running));
        let page = job.read(9).await.unwrap();
        assert_eq!((&page.bytes[..], page.next_offset, page.is_last), (&b"ready on 80\n"[..], 21, false));
        let same = client.attach(c.name()).job(job.id().clone());
        assert_eq!(same.cancel().await.unwrap(), JobState::Cancelled);
        let waited = job.wait().await.unwrap();
        assert_eq!((waited.reason, waited.state), (WaitOutcome::Exit, JobState::Cancelled));
        let jobs = c.jobs().await.unwrap();
        let listed = jobs.iter().find(|listed| listed.id == *job.id()).unwrap();
        assert_eq!((listed.state, listed.total_bytes), (JobState::Cancelled, 21));
        c.destroy().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_fork_and_a_snapshot_have_the_files() {
    with_tool("", async |tool| {
        let client = client(tool);
        let c = client.create(options(tool)).await.unwrap();
        c.exec("echo one > file").await.unwrap();
        let labelled = || ContainerOptions::default().label(LABEL, &tool.case.container_label().1);
        let fork = c.fork(labelled()).await.unwrap();
        assert_eq!(fork.exec("cat file").await.unwrap().stdout, "one\n");
        fork.destroy().await.unwrap();
        let name = format!("rust-{}", coracle_types::random_hex::<4>());
        let snapshot = c.snapshot(&name).await.unwrap();
        assert_eq!(snapshot.name, name);
        c.destroy().await.unwrap();
        let again = client.restore(&name, labelled()).await.unwrap();
        assert_eq!(again.exec("cat file").await.unwrap().stdout, "one\n");
        again.destroy().await.unwrap();
        let delete = json!({ "snapshot": name });
        client.call("snapshot_delete", delete.as_object().unwrap().clone()).await.unwrap();
    })
    .await;
}

//! The toolset `agent`: a session's own machine, and small tools that answer as a person reads.

use std::time::Duration;

use coracle::operations;
use coracle_context::Progress;
use coracle_prepare::Process;
use coracle_types::{Capability, ContainerId, ContainerName, Handle};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::work::Agent;
use super::{Tool, eventually, with_engine, with_rootful_tool, with_tool};
use crate::engines::{IMAGE, caught};

/// The configuration of an agent whose machine is the small image.
pub(super) fn configured(more: &str) -> String {
    format!(
        "{more}\n[workspace]\ntoolsets = [\"agent\"]\n[machine]\nimage = \"{IMAGE}\"\n[lifecycle]\nkeep_jobs = false\n"
    )
}

/// One session of the tools.
struct Session {
    process: Process,
}

impl Session {
    async fn response(&self, tool: &str, arguments: Value) -> coracle::CallResponse {
        respond(&self.process, tool, arguments).await
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        self.response(tool, arguments).await.text.expect("a model reads text")
    }

    /// The machine's id, as the engine knows it.
    async fn machine(&self) -> ContainerId {
        let status = self.response("containers", json!({ "operation": "status" })).await.json;
        ContainerId::parse(status["id"].as_str().unwrap_or_else(|| panic!("{status:?}"))).unwrap()
    }
}

async fn respond(process: &Process, tool: &str, arguments: Value) -> coracle::CallResponse {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    coracle::tools::execute_named(process, tool, arguments).await.expect("there is such a tool")
}

/// Runs a check with a session, and ends it.
async fn in_session(tool: &Tool<'_>, check: &impl AsyncFn(&Tool<'_>, &Session)) {
    let session = Session { process: Agent::new(tool, "agent-1").process };
    let checked = caught(check(tool, &session)).await;
    operations::end_session(&session.process.context).await;
    let left = session.process.context.store().unwrap().records().unwrap();
    if let Err(panic) = checked {
        std::panic::resume_unwind(panic);
    }
    assert!(left.iter().all(|it| it.session != "agent-1"), "the machine is left: {left:?}");
}

async fn with_session(check: impl AsyncFn(&Tool<'_>, &Session)) {
    with_tool(&configured(""), async |tool| in_session(tool, &check).await).await;
}

/// As [`with_session`], on real engines only: files of the fake's containers are not there.
async fn with_real_session(check: impl AsyncFn(&Tool<'_>, &Session)) {
    with_engine(&configured(""), async |tool| in_session(tool, &check).await).await;
}

#[tokio::test]
async fn the_first_call_makes_the_machine_and_says_so_and_the_others_work_on_it() {
    with_real_session(async |_, session| {
        let first = session.text("write_file", json!({ "path": "notes/a.txt", "content": "one\n" })).await;
        assert!(first.starts_with("[your machine coracle-main-"), "{first}");
        assert!(first.ends_with("]\nCreated notes/a.txt (4 bytes)."), "{first}");
        assert_eq!(session.text("shell", json!({ "command": "cat notes/a.txt" })).await, "one\n");
        let edit = json!({ "path": "notes/a.txt", "old_string": "one", "new_string": "two" });
        assert_eq!(session.text("edit_file", edit).await, "Replaced 1 occurrence in notes/a.txt.");
        let exec = json!({ "operation": "exec", "command": "cat notes/a.txt" });
        assert_eq!(session.text("containers", exec).await, "two\n");
        assert_eq!(session.text("read_file", json!({ "path": "notes/a.txt" })).await, "   1 | two");
        assert_eq!(session.text("shell", json!({ "command": "true" })).await, "[exit 0]");
        let list = session.text("containers", json!({ "operation": "list" })).await;
        let name = first.split_whitespace().find(|it| it.starts_with("coracle-main-")).unwrap();
        assert!(list.contains(&format!("\n{name} ")), "{list}");
    })
    .await;
}

#[tokio::test]
async fn a_stopped_machine_is_started_and_a_removed_one_is_recreated() {
    with_session(async |tool, session| {
        session.text("shell", json!({ "command": "true" })).await;
        let before = session.machine().await;
        tool.case.runtime.stop(&before, Duration::ZERO).await.unwrap();
        let again = session.text("shell", json!({ "command": "echo again" })).await;
        assert_eq!(again, "[the machine had stopped and was started again: what ran in it has ended]\nagain\n");
        tool.case.runtime.remove(&before).await.unwrap();
        let recreated = session.text("shell", json!({ "command": "echo again" })).await;
        assert!(
            recreated.starts_with("[the machine was gone, with the files that only it had; your machine "),
            "{recreated}"
        );
        assert!(recreated.ends_with("]\nagain\n") && session.machine().await != before, "{recreated}");
    })
    .await;
}

#[tokio::test]
async fn a_call_that_fails_tells_all_the_same_that_the_machine_is_another() {
    with_session(async |tool, session| {
        session.text("shell", json!({ "command": "true" })).await;
        tool.case.runtime.remove(&session.machine().await).await.unwrap();
        let failed = json!({ "operation": "job_wait", "job_id": "0123abcd" });
        let failed = session.response("containers", failed).await;
        assert_eq!(failed.json["code"], "job_not_found", "{failed:?}");
        let text = failed.text.unwrap();
        assert!(text.starts_with("[the machine was gone, with the files that only it had; your machine "), "{text}");
    })
    .await;
}

#[tokio::test]
async fn an_invalid_call_creates_no_machine() {
    with_session(async |_, session| {
        for (tool, arguments, code) in [
            ("read_file", json!({ "path": 7 }), "invalid_input"),
            ("shell", json!({ "command": "true", "timeout": "long" }), "invalid_input"),
            ("containers", json!({ "operation": "exec", "comand": "true" }), "unknown_field"),
            ("containers", json!({ "operation": "exec", "command": "true", "about": "exec" }), "unknown_field"),
            ("containers", json!({ "operation": "help", "of": "exec" }), "unknown_field"),
        ] {
            let answer = session.response(tool, arguments).await;
            assert_eq!(answer.json["code"], code, "{answer:?}");
        }
        let records = session.process.context.store().unwrap().records().unwrap();
        assert!(records.is_empty(), "{records:?}");
    })
    .await;
}

#[tokio::test]
async fn the_first_calls_of_two_processes_of_a_session_make_one_machine() {
    with_session(async |tool, session| {
        let beside = Session { process: Agent::new(tool, "agent-1").process };
        let call = || json!({ "command": "echo here" });
        let (one, other) = tokio::join!(session.text("shell", call()), beside.text("shell", call()));
        assert!(one.ends_with("here\n") && other.ends_with("here\n"), "{one} {other}");
        let records = session.process.context.store().unwrap().records().unwrap();
        assert_eq!(records.len(), 1, "{records:?}");
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_call_does_not_cancel_the_creation_of_the_machine() {
    with_session(async |_, session| {
        let withdrawn = CancellationToken::new();
        let impatient = session.process.for_call(withdrawn.clone(), Progress::none());
        let call = respond(&impatient, "shell", json!({ "command": "true" }));
        let (response, ()) = tokio::join!(call, async { withdrawn.cancel() });
        assert_eq!(response.json["code"], "cancelled", "{response:?}");
        let text = session.text("shell", json!({ "command": "echo made" })).await;
        assert_eq!(text, "made\n", "the machine was made by the first call");
    })
    .await;
}

#[tokio::test]
async fn a_container_that_is_named_is_used_and_no_machine_is_made() {
    with_real_session(async |tool, session| {
        let mut create = tool.create_call(json!({ "name": "web", "memory_limit": "256m" }));
        create.as_object_mut().unwrap().remove("operation");
        let made = session.text("create", create).await;
        assert!(made.starts_with("web is ready: image ") && made.contains("\nworked: "), "{made}");
        let write = json!({ "path": "a.txt", "content": "of web", "container": "web" });
        session.text("write_file", write).await;
        let cat = json!({ "command": "cat a.txt", "container": "web" });
        assert_eq!(session.text("shell", cat).await, "of web");
        let edit = json!({ "path": "a.txt", "old_string": "of", "new_string": "in", "container": "web" });
        assert_eq!(session.text("edit_file", edit).await, "Replaced 1 occurrence in a.txt.");
        assert_eq!(tool.prints("web", "cat a.txt").await, "in web");
        let destroyed = session.text("destroy", json!({ "container": "web" })).await;
        assert!(destroyed.starts_with("web destroyed\n  saved /workspace (files, 1 file, "), "{destroyed}");
        let records = session.process.context.store().unwrap().records().unwrap();
        assert!(records.is_empty(), "{records:?}");
    })
    .await;
}

#[tokio::test]
async fn errors_say_what_to_do_in_the_words_of_this_toolset() {
    with_real_session(async |_, session| {
        session.text("write_file", json!({ "path": "a.txt", "content": "one" })).await;
        for (tool, arguments, expected) in [
            ("write_file", json!({ "path": "a.txt", "content": "two" }), "`mode: \"overwrite\"`"),
            ("read_file", json!({ "path": "b.txt" }), "\nlook with `find_files`"),
            ("read_file", json!({ "path": "/etc/passwd" }), "`shell` reaches the other files"),
            ("shell", json!({ "cmd": "ls" }), "\nits fields are as_root, background, command, "),
            ("containers", json!({ "operation": "destroy" }), "\n`destroy` needs it"),
            ("containers", json!({ "operation": "snapshoot" }), "\ndid you mean `snapshot`?"),
            ("containers", json!({ "operation": "exec", "command": "ls", "timout": 3 }), "\ndid you mean `timeout`?"),
            ("create", json!({ "memry_limit": "1g" }), "\ndid you mean `memory_limit`?"),
            ("job", json!({ "action": "read" }), "\ngive the job's id"),
            ("job", json!({ "job": "00000000" }), "no job `00000000`"),
        ] {
            let response = session.response(tool, arguments).await;
            let text = response.text.clone().unwrap();
            assert!(response.is_error() && text.contains(expected), "{tool}: {text}");
            assert!(response.json["code"].is_string(), "{response:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_job_is_waited_for_read_listed_and_cancelled() {
    with_session(async |_, session| {
        let started = session.text("shell", json!({ "command": "echo up; sleep 600", "background": true })).await;
        let job = started.rsplit_once("[job ").and_then(|it| it.1.split_once(' ')).expect("a job").0.to_owned();
        let waited = session.text("job", json!({ "job": job, "pattern": "up" })).await;
        assert!(waited.starts_with("up\n[") && waited.contains("line 1 matches"), "{waited}");
        let next = waited.rsplit_once("\n[next offset ").and_then(|it| it.1.strip_suffix(']')).expect("an offset");
        let again = json!({ "job": job, "pattern": "up", "offset": next.parse::<u64>().unwrap(), "timeout": 0.5 });
        assert!(session.text("job", again).await.contains("still waiting"), "the line was found once more");
        let read = session.text("job", json!({ "job": job, "action": "read" })).await;
        assert_eq!(read.lines().next(), Some("up"), "{read}");
        assert!(session.text("job", json!({ "action": "list" })).await.contains(&job));
        let cancelled = session.text("job", json!({ "job": job, "action": "cancel" })).await;
        assert!(cancelled.contains(&job), "{cancelled}");
        let late = session.text("shell", json!({ "command": "echo begun; sleep 600", "timeout": 0.5 })).await;
        assert!(late.starts_with("begun\n[still running after ") && late.contains(" as job "), "{late}");
    })
    .await;
}

/// A server's answer to a simple request; `None` while it does not run.
async fn get(address: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address).await else { return String::new() };
    let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_server_of_the_shell_answers_at_the_forwarded_url() {
    with_real_session(async |_, session| {
        let serve = "while :; do printf 'HTTP/1.0 200 OK\\r\\n\\r\\nof the machine' | nc -l -p 8000; done";
        session.text("shell", json!({ "command": serve, "background": true })).await;
        let url = session.text("forward", json!({ "port": 8000 })).await;
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        let address = url.trim_start_matches("http://").to_owned();
        let answers = async || get(&address).await.ends_with("\r\n\r\nof the machine");
        eventually("the server answers at the URL", Duration::from_secs(20), answers).await;
    })
    .await;
}

#[tokio::test]
async fn the_last_command_is_undone() {
    let config = configured("[checkpoints]\nsteps = \"always\"\n");
    with_engine(&config, async |tool| {
        in_session(tool, &async |tool: &Tool<'_>, session: &Session| {
            session.text("shell", json!({ "command": "mkdir /tmp/app; echo one > /tmp/app/file" })).await;
            session.text("shell", json!({ "command": "rm -r /tmp/app" })).await;
            let undone = session.response("undo", json!({})).await;
            if Capability::lacked_by(tool.case.engine()).contains(&Capability::Checkpoint) {
                assert_eq!(undone.json["code"], "unsupported", "{undone:?}");
                return;
            }
            let text = undone.text.unwrap();
            assert!(text.contains("has the files of checkpoint 2"), "{text}");
            assert_eq!(session.text("shell", json!({ "command": "cat /tmp/app/file" })).await, "one\n");
            let missing = session.text("undo", json!({ "checkpoint": 9 })).await;
            assert!(missing.contains("has no checkpoint 9"), "{missing}");
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn the_machine_is_saved_as_a_snapshot_and_forked() {
    with_rootful_tool(&configured(""), async |tool| {
        // On the fake, root inside is the account that runs the tests.
        if !tool.case.is_real() && !coracle_skips::has_root() {
            return;
        }
        in_session(tool, &async |_: &Tool<'_>, session: &Session| {
            session.text("shell", json!({ "command": "echo kept > /root.txt", "as_root": true })).await;
            let fork = json!({ "operation": "fork", "name": "copy", "mount_cwd": false });
            let forked = session.response("containers", fork).await;
            assert!(forked.is_success(), "{forked:?}");
            let cat = json!({ "command": "cat /root.txt", "container": "copy" });
            assert_eq!(session.text("shell", cat).await, "kept\n");
            let snapshot = json!({ "operation": "snapshot", "name": "kept" });
            let saved = session.text("containers", snapshot).await;
            assert!(saved.starts_with("kept has the files of coracle-main-"), "{saved}");
            let delete = json!({ "operation": "snapshot_delete", "name": "kept" });
            let deleted = session.response("containers", delete).await;
            assert!(deleted.is_success(), "{deleted:?}");
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn the_machine_of_a_session_is_found_by_its_name_and_another_session_has_another() {
    with_tool(&configured("[security]\ncross_session = \"none\"\n"), async |tool| {
        in_session(tool, &async |tool: &Tool<'_>, session: &Session| {
            session.text("write_file", json!({ "path": "/workspace/mine.txt", "content": "mine" })).await;
            let machine = session.machine().await;
            // Another process continues the session.
            let again = Session { process: Agent::new(tool, "agent-1").process };
            assert_eq!(again.machine().await, machine);
            let mut other = session.process.for_session();
            other.context.call.session = ContainerName::parse("agent-2").unwrap();
            let other = Session { process: other };
            assert_ne!(other.machine().await, machine);
            let name = session.response("containers", json!({ "operation": "status" })).await.json["container"].take();
            let foreign = json!({ "command": "true", "container": name });
            assert_eq!(other.response("shell", foreign).await.json["code"], "other_session");
            operations::end_session(&other.process.context).await;
            assert!(tool.case.runtime.inspect(&Handle::from(&machine)).await.unwrap().running());
        })
        .await;
    })
    .await;
}

//! Commands that outlive a call.

use std::time::Duration;

use coracle_runtime::FakeRuntime;
use coracle_runtime::fake::Reply;
use coracle_types::Exit;
use serde_json::{Value, json};

use super::{Recording, recorded};

fn commands(fake: &FakeRuntime) {
    let lines: String = (1..=200).map(|it| format!("line {it}\n")).collect();
    let serves = Reply::new(Exit::Code(0), "listening on 8080\n", "").after(Duration::from_secs(3600));
    // One stream each: the order of two in the combined output is not defined.
    fake.reply("make", Exit::Code(2), &lines, "");
    fake.reply("complain", Exit::Code(1), "", "it failed\n");
    fake.replies("serve", [serves]);
}

/// Starts a job and returns its id.
async fn begun(it: &Recording<'_>, what: &str, command: &str) -> String {
    let call = json!({ "operation": "exec_background", "container": "web", "command": command });
    it.call(what, call).await["job_id"].as_str().unwrap().to_owned()
}

/// A call about a job.
fn of(job: &str, operation: &str, more: Value) -> Value {
    let mut call = json!({ "operation": operation, "container": "web", "job_id": job });
    crate::tool::merge(call.as_object_mut().unwrap(), more);
    call
}

#[tokio::test]
async fn jobs_answer_as_before() {
    recorded("jobs", "", async |it| {
        commands(&it.fake);
        it.container("web", json!({})).await;
        it.call("no jobs", json!({ "operation": "jobs" })).await;
        ended(it).await;
        goes_on(it).await;
        wrong(it).await;
    })
    .await;
}

async fn ended(it: &Recording<'_>) {
    let job = begun(it, "a job that fails", "make").await;
    for (what, operation, more) in [
        ("its end", "job_wait", json!({})),
        ("its last lines", "exec_poll", json!({ "lines": 2 })),
        ("a page of one stream", "job_read", json!({ "stream": "stdout", "limit": 32 })),
        ("a page from the end", "job_read", json!({ "stream": "stdout", "offset": -9 })),
        ("a page of the other stream", "job_read", json!({ "stream": "stderr" })),
        ("a page as bytes", "job_read", json!({ "offset": 0, "limit": 8, "encoding": "base64" })),
        ("from a line on", "job_read", json!({ "stream": "stdout", "line": 199 })),
        ("lines that match", "job_read", json!({ "pattern": "line 1[12]$", "context": 1 })),
        ("no lines that match", "job_read", json!({ "pattern": "nothing" })),
        ("a cancel that comes late", "exec_cancel", json!({})),
    ] {
        it.call(what, of(&job, operation, more)).await;
    }
    let job = begun(it, "a job that complains", "complain").await;
    it.call("its end", of(&job, "job_wait", json!({}))).await;
    it.call("what it complains of", of(&job, "job_read", json!({ "stream": "stderr", "offset": -7 }))).await;
}

async fn goes_on(it: &Recording<'_>) {
    let job = begun(it, "a job that goes on", "serve").await;
    it.call(
        "a line that is waited for",
        of(&job, "job_wait", json!({ "until": "regex", "pattern": "on [0-9]+", "offset": 0 })),
    )
    .await;
    it.call("an end that does not come", of(&job, "job_wait", json!({ "timeout": 1 }))).await;
    it.call("how it stands", of(&job, "exec_poll", json!({}))).await;
    it.call("all jobs", json!({ "operation": "jobs", "container": "web" })).await;
    it.call("the container has a job", json!({ "operation": "list" })).await;
    it.call("it is cancelled", of(&job, "exec_cancel", json!({}))).await;
    it.call("how it stands then", of(&job, "exec_poll", json!({}))).await;
}

async fn wrong(it: &Recording<'_>) {
    let unknown = "0badcafe";
    for operation in ["exec_poll", "job_wait", "job_read", "exec_cancel"] {
        it.call("a job that is not there", of(unknown, operation, json!({}))).await;
    }
    for (what, operation, more) in [
        ("a pattern that is none", "job_read", json!({ "pattern": "(" })),
        ("a page that is too large", "job_read", json!({ "limit": "1g" })),
        ("an event without what it is about", "job_wait", json!({ "until": "regex" })),
        ("an event that is none", "job_wait", json!({ "until": "dawn" })),
        ("a wait that is too long", "job_wait", json!({ "timeout": "2h" })),
    ] {
        it.call(what, of(unknown, operation, more)).await;
    }
    it.call("jobs of an unknown container", json!({ "operation": "jobs", "container": "nobody" })).await;
}

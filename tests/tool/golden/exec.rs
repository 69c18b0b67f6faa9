//! Commands that are waited for.

use std::time::Duration;

use coracle_runtime::FakeRuntime;
use coracle_runtime::fake::Reply;
use coracle_types::Exit;
use serde_json::{Value, json};

use super::recorded;

/// Commands of the tests, and what they do.
fn commands(fake: &FakeRuntime) {
    let lines: String = (0..400).map(|it| format!("line {it}\n")).collect();
    let numbers: String = (0..100).map(|it| format!("{it}\n")).collect();
    let forever = Reply::new(Exit::Code(0), "so far\n", "").after(Duration::from_secs(3600));
    fake.reply("make", Exit::Code(0), "built\n", "a warning\n");
    fake.reply("make test", Exit::Code(3), "one failed\n", "why\n");
    fake.reply("many", Exit::Code(0), &lines, &numbers);
    fake.reply("cat", Exit::Code(0), "", "");
    fake.replies("forever", [forever]);
}

fn exec(more: Value) -> Value {
    let mut call = json!({ "operation": "exec", "container": "web" });
    crate::tool::merge(call.as_object_mut().unwrap(), more);
    call
}

#[tokio::test]
async fn exec_answers_as_before() {
    recorded("exec", "", async |it| {
        commands(&it.fake);
        it.container("web", json!({})).await;
        for (what, more) in [
            ("a script that succeeds", json!({ "command": "make" })),
            ("words, and an exit code", json!({ "command": ["make", "test"] })),
            ("a program that is not there", json!({ "command": ["nothing"] })),
            ("output that is cut", json!({ "command": "many", "max_output": "1k" })),
            ("output as bytes", json!({ "command": "make", "encoding": "base64" })),
            (
                "with input, variables and a directory",
                json!({ "command": "cat", "stdin": "in", "env": { "A": "1" }, "workdir": "/tmp" }),
            ),
            ("as root", json!({ "command": "make", "as_root": true })),
            ("a time limit", json!({ "command": "forever", "timeout": 1 })),
            ("a limit of silence", json!({ "command": "forever", "silence_timeout": 1 })),
            ("a time limit that leaves a job", json!({ "command": "forever", "timeout": 1, "on_timeout": "keep" })),
            ("a directory that is not there", json!({ "command": "make", "workdir": "/missing" })),
            ("no command", json!({ "command": [] })),
            ("a command with a NUL byte", json!({ "command": "a\u{0}b" })),
            ("a container that is not there", json!({ "container": "nobody", "command": "make" })),
            ("input twice", json!({ "command": "cat", "stdin": "a", "stdin_base64": "YQ==" })),
            ("an encoding that is none", json!({ "command": "make", "encoding": "rot13" })),
        ] {
            it.call(what, exec(more)).await;
        }
        it.call("a hint for a person", json!({ "operation": "exec_interactive_hint", "container": "web" })).await;
        it.call(
            "the same as root",
            json!({ "operation": "exec_interactive_hint", "container": "web", "as_root": true }),
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn exec_is_refused_as_before_where_root_may_not_be() {
    recorded("exec_no_root", "[security]\nallow_root = false\n", async |it| {
        commands(&it.fake);
        it.container("web", json!({ "user": "1000" })).await;
        it.call("as root", exec(json!({ "command": "make", "as_root": true }))).await;
        it.call("as the user", exec(json!({ "command": "make" }))).await;
    })
    .await;
}

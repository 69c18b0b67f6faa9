//! The tools of a session: files, shell, snippets, workflows.

use std::time::Duration;

use coracle_runtime::FakeRuntime;
use coracle_runtime::fake::{LOCAL_IMAGE, Reply};
use coracle_types::Exit;
use serde_json::json;

use super::{Recording, recorded};

fn config() -> String {
    format!(
        "[workspace]\nimage = \"{LOCAL_IMAGE}\"\n[run_code]\npreload = {{ command = [\"cat\"], languages = [\"bash\"] }}\n"
    )
}

#[tokio::test]
async fn files_of_a_session_answer_as_before() {
    recorded("session_files", &config(), async |it| {
        let agent = &it.in_session("agent-1");
        written(agent).await;
        read(agent).await;
        found(agent).await;
        removed(agent).await;
        ended(agent).await;
    })
    .await;
}

async fn written(it: &Recording<'_>) {
    for (what, name, arguments) in [
        ("nothing is there", "ls", json!({})),
        ("a new file", "write_file", json!({ "path": "src/a.txt", "content": "one\ntwo\nthree\n" })),
        ("by its other name", "write_file", json!({ "file_path": "b.md", "content": "# b\n" })),
        ("more of it", "write_file", json!({ "path": "b.md", "content": "more\n", "mode": "append" })),
        ("one that is there", "write_file", json!({ "path": "b.md", "content": "x", "mode": "create" })),
        ("bytes", "write_file", json!({ "path": "c.bin", "content": "AAEC", "encoding": "base64" })),
        ("a program", "write_file", json!({ "path": "run.sh", "content": "exit 0\n", "executable": true })),
        ("bytes that are none", "write_file", json!({ "path": "d", "content": "!", "encoding": "base64" })),
        ("outside", "write_file", json!({ "path": "../x", "content": "x" })),
        ("a directory", "write_file", json!({ "path": "src", "content": "x" })),
        ("without content", "write_file", json!({ "path": "x" })),
        ("a change", "edit_file", json!({ "path": "src/a.txt", "old_string": "two", "new_string": "2" })),
        ("a change of nothing", "edit_file", json!({ "path": "src/a.txt", "old_string": "ten", "new_string": "10" })),
        (
            "a change of what is there twice",
            "edit_file",
            json!({ "path": "src/a.txt", "old_string": "e", "new_string": "E" }),
        ),
        (
            "a change of all",
            "edit_file",
            json!({ "path": "src/a.txt", "old_string": "e", "new_string": "E", "replace_all": true }),
        ),
        (
            "a change of a file that is missing",
            "edit_file",
            json!({ "path": "none", "old_string": "a", "new_string": "b" }),
        ),
        ("a change that is none", "edit_file", json!({ "path": "src/a.txt", "old_string": "a", "new_string": "a" })),
    ] {
        it.tool(what, name, arguments).await;
    }
}

async fn read(it: &Recording<'_>) {
    for (what, name, arguments) in [
        ("a directory", "ls", json!({ "path": "src" })),
        ("a directory that is missing", "ls", json!({ "path": "none" })),
        ("a file", "read_file", json!({ "path": "src/a.txt" })),
        ("some lines", "read_file", json!({ "path": "src/a.txt", "offset": 1, "limit": 1 })),
        ("lines after the end", "read_file", json!({ "path": "src/a.txt", "offset": 50 })),
        ("bytes", "read_file", json!({ "path": "c.bin", "encoding": "base64" })),
        ("bytes as text", "read_file", json!({ "path": "c.bin" })),
        ("a file that is missing", "read_file", json!({ "path": "src/b.txt" })),
        ("a directory as a file", "read_file", json!({ "path": "src" })),
        ("outside", "read_file", json!({ "path": "/etc/passwd" })),
        ("an offset that is none", "read_file", json!({ "path": "src/a.txt", "offset": -1 })),
        ("a field that is none", "read_file", json!({ "path": "src/a.txt", "lines": 3 })),
        ("no path", "read_file", json!({})),
    ] {
        it.tool(what, name, arguments).await;
    }
}

async fn found(it: &Recording<'_>) {
    for (what, name, arguments) in [
        ("files of a name", "glob", json!({ "pattern": "**/*.txt" })),
        ("no files", "glob", json!({ "pattern": "*.rs" })),
        ("a pattern that is none", "glob", json!({ "pattern": "[" })),
        ("lines", "grep", json!({ "pattern": "on[eE]|more", "context": 1 })),
        ("lines of some files", "grep", json!({ "pattern": "(?i)B", "glob": "*.md", "case_insensitive": true })),
        ("no lines", "grep", json!({ "pattern": "nothing", "path": "src" })),
        ("an expression that is none", "grep", json!({ "pattern": "(" })),
        ("where nothing is", "grep", json!({ "pattern": "x", "path": "none" })),
    ] {
        it.tool(what, name, arguments).await;
    }
}

async fn removed(it: &Recording<'_>) {
    it.tool("a file", "rm", json!({ "path": "b.md" })).await;
    it.tool("a directory", "rm", json!({ "path": "src" })).await;
    it.tool("what is missing", "rm", json!({ "path": "b.md" })).await;
    it.tool("everything", "rm", json!({ "path": "/" })).await;
    it.tool("what is left", "ls", json!({})).await;
}

/// The end of the session, which saves what is in it.
async fn ended(it: &Recording<'_>) {
    let ended = coracle_prepare::session_tools::end(&it.process.context).await.unwrap();
    it.note("the session ends", "(the connection closes)", &format!("{:#}", serde_json::Value::Object(ended)));
    it.tool("it has ended", "ls", json!({})).await;
}

fn commands(fake: &FakeRuntime) {
    let lines: String = (0..6000).map(|it| format!("line {it}\n")).collect();
    let forever = Reply::new(Exit::Code(0), "so far\n", "").after(Duration::from_secs(3600));
    fake.reply("make", Exit::Code(0), "built\n", "a warning\n");
    fake.reply("make test", Exit::Code(3), "", "one failed\n");
    fake.reply("many", Exit::Code(0), &lines, "");
    fake.replies("forever", [forever]);
    fake.reply("python3 -c print(1)", Exit::Code(0), "1\n", "");
    fake.reply("python3 -c 1/0", Exit::Code(1), "", "ZeroDivisionError: division by zero\n");
}

#[tokio::test]
async fn commands_of_a_session_answer_as_before() {
    recorded("session_shell", &config(), async |it| {
        commands(&it.fake);
        let agent = &it.in_session("agent-1");
        shell(agent).await;
        snippets(agent).await;
        coracle_prepare::session_tools::end(&agent.process.context).await.unwrap();
    })
    .await;
}

async fn shell(it: &Recording<'_>) {
    for (what, arguments) in [
        ("a command", json!({ "command": ["make"] })),
        ("an exit code", json!({ "command": ["make", "test"] })),
        ("a program that is missing", json!({ "command": ["nothing"] })),
        ("output that is not captured", json!({ "command": ["make"], "capture_output": false })),
        (
            "variables, input and a directory",
            json!({ "command": ["make"], "env": { "A": "1" }, "stdin": "x", "cwd": "/workspace" }),
        ),
        ("a time limit", json!({ "command": ["forever"], "timeout": 1 })),
        ("a text", json!({ "command": "make" })),
        ("nothing", json!({ "command": [] })),
        ("a directory outside", json!({ "command": ["make"], "cwd": "/etc" })),
        ("a directory that is missing", json!({ "command": ["make"], "cwd": "none" })),
        ("a limit that is too long", json!({ "command": ["make"], "timeout": 30000 })),
        ("a variable that is none", json!({ "command": ["make"], "env": { "a b": "1" } })),
    ] {
        it.tool(what, "shell_execute", arguments).await;
    }
    let long = it.tool("output that is cut", "shell_execute", json!({ "command": ["many"] })).await;
    let id = &long["value"]["output_id"];
    for (what, arguments) in [
        ("the end of it", json!({ "output_id": id, "offset": -20 })),
        ("a page of it", json!({ "output_id": id, "stream": "stdout", "offset": 100, "limit": 40 })),
        ("lines of it", json!({ "output_id": id, "pattern": "line 59[0-9]9", "context": 0, "max_matches": 2 })),
        ("of another", json!({ "output_id": "0badcafe" })),
        ("of none", json!({})),
    ] {
        it.tool(what, "shell_output", arguments).await;
    }
}

async fn snippets(it: &Recording<'_>) {
    for (what, name, arguments) in [
        ("Python", "evaluate_python", json!({ "code": "print(1)" })),
        ("Python that fails", "evaluate_python", json!({ "code": "1/0" })),
        ("Python with what it does not take", "evaluate_python", json!({ "code": "1", "reads": ["x"] })),
        ("a snippet that the user's program runs", "run_code", json!({ "code": "printed by cat", "language": "bash" })),
        ("a language that the program does not know", "run_code", json!({ "code": "1", "language": "python" })),
        ("a language that is none", "run_code", json!({ "code": "1", "language": "cobol" })),
        ("no snippet", "run_code", json!({ "code": "" })),
        ("a limit that is none", "run_code", json!({ "code": "1", "timeout": "soon" })),
    ] {
        it.tool(what, name, arguments).await;
    }
}

#[tokio::test]
async fn errors_of_unknown_workflows_are_unchanged() {
    recorded("workflows", "", async |it| {
        for name in [
            "workflow_status",
            "workflow_events",
            "workflow_cancel",
            "workflow_result",
            "workflow_diff",
            "workflow_apply",
        ] {
            it.tool("an unknown workflow", name, json!({ "workflow": "issue-1" })).await;
            it.tool("a name that is none", name, json!({ "workflow": "Issue 1" })).await;
            it.tool("no name", name, json!({})).await;
        }
        let exec = json!({ "workflow": "issue-1", "command": "true" });
        it.tool("a command in an unknown workflow", "workflow_exec", exec).await;
        it.tool("no command", "workflow_exec", json!({ "workflow": "issue-1" })).await;
        it.tool("no model is configured", "workflow_start", json!({ "prompt": "Mend it." })).await;
        it.tool("a profile that is none", "workflow_start", json!({ "prompt": "Mend it.", "profile": "other" })).await;
        it.tool("no task", "workflow_start", json!({})).await;
    })
    .await;
}

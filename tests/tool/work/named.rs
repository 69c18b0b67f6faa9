//! Tools of a session in a container of `create`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Agent, with_agent, with_real_agent};
use crate::engines::IMAGE;

/// A tool's call in that container.
fn within(container: &str, mut arguments: Value) -> Value {
    arguments["container"] = container.into();
    arguments
}

/// All lines of the audit trail.
fn trail(agent: &Agent<'_>) -> String {
    let files = std::fs::read_dir(agent.tool.state().join("audit")).unwrap().map(|it| it.unwrap().path());
    let lines = files.filter(|it| it.extension().is_some_and(|it| it == "jsonl"));
    lines.map(|it| std::fs::read_to_string(it).unwrap()).collect()
}

async fn of_exec(agent: &Agent<'_>, container: &str, command: &str) -> String {
    agent.tool.prints(container, command).await
}

#[tokio::test]
async fn a_file_that_a_tool_writes_is_the_file_that_exec_reads() {
    with_real_agent("", async |agent| {
        let name = agent.tool.created(json!({})).await;
        let write = json!({ "path": "src/a.txt", "content": "one\ntwo\n" });
        agent.value("write_file", within(&name, write)).await;
        assert_eq!(of_exec(agent, &name, "cat src/a.txt; stat -c %u src/a.txt").await, {
            format!("one\ntwo\n{}", of_exec(agent, &name, "id -u").await)
        });
        let workdir = of_exec(agent, &name, "pwd").await;
        let read = agent.value("read_file", within(&name, json!({ "path": format!("{workdir}/src/a.txt") }))).await;
        assert_eq!(read["content"], "   1 | one\n   2 | two");
        let found = agent.value("grep", within(&name, json!({ "pattern": "t.o" }))).await;
        assert_eq!((&found[0]["path"], &found[0]["line_number"]), (&"src/a.txt".into(), &2.into()), "{found:#}");
        // The session's own container does not have it.
        assert_eq!(agent.code("read_file", json!({ "path": "src/a.txt" })).await, "file_not_found");
        agent.value("rm", within(&name, json!({ "path": "src/a.txt" }))).await;
        assert_eq!(of_exec(agent, &name, "ls src | wc -l").await, "0");
    })
    .await;
}

#[tokio::test]
async fn a_file_that_a_command_changed_has_to_be_read_before_it_is_edited() {
    with_real_agent("", async |agent| {
        let name = agent.tool.created(json!({})).await;
        of_exec(agent, &name, "echo one > a.txt").await;
        let edit = || within(&name, json!({ "path": "a.txt", "old_string": "one", "new_string": "two" }));
        assert_eq!(agent.code("edit_file", edit()).await, "read_required");
        agent.value("read_file", within(&name, json!({ "path": "a.txt" }))).await;
        of_exec(agent, &name, "echo one more > a.txt").await;
        assert_eq!(agent.code("edit_file", edit()).await, "stale_read");
        agent.value("read_file", within(&name, json!({ "path": "a.txt" }))).await;
        agent.value("edit_file", edit()).await;
        assert_eq!(of_exec(agent, &name, "cat a.txt").await, "two more");
    })
    .await;
}

#[tokio::test]
async fn a_command_of_the_shell_runs_where_exec_runs_it() {
    with_real_agent("", async |agent| {
        let name = agent.tool.created(json!({ "env": { "MODE": "plain" } })).await;
        let script = "hostname; id -u; pwd; echo $MODE $HOME";
        let shell = json!({ "command": ["sh", "-c", script] });
        let ran = agent.value("shell_execute", within(&name, shell.clone())).await;
        assert_eq!(ran["stdout"].as_str().unwrap().trim_end(), of_exec(agent, &name, script).await);
        let own = agent.value("shell_execute", shell).await;
        assert_ne!(own["stdout"], ran["stdout"]);
    })
    .await;
}

#[tokio::test]
async fn a_container_that_is_named_is_ours_and_its_files_are_those_of_its_work_directory() {
    with_agent("", async |agent| {
        let missing = agent.call("ls", json!({ "container": "no-such" })).await;
        assert_eq!((&missing["code"], &missing["success"]), (&"not_found".into(), &false.into()), "{missing:#}");
        assert!(missing["hint"].as_str().unwrap().contains("list"), "{missing:#}");
        let invalid = agent.call("ls", json!({ "container": "no such" })).await;
        assert_eq!(invalid["code"], "invalid_name", "{invalid:#}");
        let create = json!({ "operation": "create", "image": IMAGE, "mount_cwd": false });
        let Value::Object(create) = agent.tool.create_call(create) else { panic!("an object") };
        let call = coracle::CallInput::Text(Value::from(create).to_string().into());
        let made = coracle::execute(coracle::operations::ALL, &agent.process, call).await.json;
        let name = made["container"].as_str().unwrap_or_else(|| panic!("{made:#?}"));
        for outside in ["/etc/passwd", "/workspaces/a"] {
            let refused = agent.call("read_file", within(name, json!({ "path": outside }))).await;
            assert_eq!(refused["code"], "path_escape", "{refused:#}");
            assert!(refused["message"].as_str().unwrap().contains("work directory"), "{refused:#}");
        }
        let listed = agent.call("ls", within(name, json!({}))).await;
        assert_eq!(
            (&listed["success"], &listed["workspace"]["session_id"]),
            (&true.into(), &name.into()),
            "{listed:#}"
        );
        let destroy = json!({ "operation": "destroy", "container": name }).to_string();
        let call = coracle::CallInput::Text(destroy.into());
        assert_eq!(coracle::execute(coracle::operations::ALL, &agent.process, call).await.json["success"], true);
    })
    .await;
}

#[tokio::test]
async fn answers_about_a_named_container_have_no_secrets_and_are_audited() {
    with_real_agent("[exec]\nredact = true\n", async |agent| {
        let secret = "a-password-of-create";
        let name = agent.tool.created(json!({ "env": { "DB_PASSWORD": secret } })).await;
        let command = json!({ "command": ["sh", "-c", "echo $DB_PASSWORD | tee told"] });
        let ran = agent.call("shell_execute", within(&name, command)).await;
        let read = agent.call("read_file", within(&name, json!({ "path": "told" }))).await;
        for answer in [&ran, &read] {
            let text = answer.to_string();
            assert!(text.contains("[redacted:DB_PASSWORD]") && !text.contains(secret), "{answer:#}");
        }
        agent.value("write_file", within(&name, json!({ "path": "new", "content": secret }))).await;
        let trail = trail(agent);
        let lines = trail.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
        let written: Vec<_> = lines.filter(|it| it["op"] == "write_file" && it["container"] == *name).collect();
        assert_eq!(written.len(), 2, "{trail}");
        assert!(!trail.contains(secret));
    })
    .await;
}

#[tokio::test]
async fn output_of_commands_in_a_named_container_is_in_no_log() {
    with_real_agent("", async |agent| {
        let secret = "a-password-of-create";
        let name = agent.tool.created(json!({ "env": { "DB_PASSWORD": secret } })).await;
        let command = json!({ "command": ["sh", "-c", "echo $DB_PASSWORD"] });
        let ran = agent.value("shell_execute", within(&name, command)).await;
        assert_eq!(ran["stdout"], format!("{secret}\n"), "{ran:#}");
        let holds = holding(&agent.tool.state(), secret);
        assert!(holds.is_empty(), "{holds:?}");
        // Control: the search finds an existing text.
        assert!(!holding(&agent.tool.state(), &name).is_empty());
    })
    .await;
}

/// Files below a directory that contain a text.
fn holding(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()) {
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            found.extend(holding(&path, text));
        } else if kind.is_file() && String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(text) {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn a_snippet_runs_with_the_files_of_the_container_that_it_names() {
    with_real_agent("", async |agent| {
        let bash = "printf '#!/bin/sh\\nexec /bin/sh \"$@\"\\n' > /bin/bash; chmod 755 /bin/bash";
        let name = agent.tool.created(json!({ "setup_commands": [bash] })).await;
        of_exec(agent, &name, "echo one > a.txt").await;
        let code = "cat a.txt; cat; echo new > b.txt; id -u";
        let run = json!({ "code": code, "language": "bash", "stdin": "in\n" });
        let ran = agent.call("run_code", within(&name, run)).await;
        let uid = of_exec(agent, &name, "id -u").await;
        assert_eq!((&ran["success"], &ran["output"]), (&true.into(), &json!(format!("one\nin\n{uid}\n"))), "{ran:#}");
        assert_eq!(of_exec(agent, &name, "cat b.txt; ls /tmp | grep -c coracle-run || true").await, "new\n0");
        // With the programs of that container, which stays even if a snippet takes too long.
        let lacks = json!({ "code": "1", "language": "python" });
        assert_eq!(agent.code("run_code", within(&name, lacks)).await, "language_unavailable");
        let slow = json!({ "code": "sleep 30", "language": "bash", "timeout": 0.3 });
        assert_eq!(agent.code("run_code", within(&name, slow)).await, "timed_out");
        assert_eq!(of_exec(agent, &name, "cat b.txt").await, "new");
        assert_eq!(agent.code("run_code", within("nobody-has-it", json!({ "code": "1" }))).await, "not_found");
    })
    .await;
}

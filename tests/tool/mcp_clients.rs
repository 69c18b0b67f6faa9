//! The MCP server by the protocol's own programs and libraries, which `cargo xtask test` installs.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::agent_tools::configured;
use super::approvals::{self, Proxied};
use super::mcp_http::Server;
use super::person::Person;
use super::proxied::Served;
use super::work::code::{SNIPPETS, make_snippets};
use super::{Tool, eventually, with_engine, with_rootful_engine, with_tool, without_engine};
use crate::engines::{IMAGE, skip};

const INSPECTOR: &str = "node_modules/.bin/mcp-inspector";

/// A program that `cargo xtask test` installs in `target/tools`. If it is missing, the test is skipped.
pub(super) fn installed(path: &str) -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let mut tools = tests.ancestors().map(|it| it.join("tools").join(path));
    let found = tools.find(|it| it.exists());
    if found.is_none() {
        skip(&format!("needs {path}, which `cargo xtask test` installs"));
    }
    found
}

/// A file of this directory.
pub(super) fn ours(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

#[expect(clippy::disallowed_methods, reason = "a foreign client")]
pub(super) fn client(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

pub(super) fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The inspector with the settings to find a server.
async fn inspect(tool: &Tool<'_>, inspector: &Path, server: &[&str], words: &[&str]) -> Value {
    let program = tool.command([] as [&str; 0]);
    let mut command = client(inspector);
    command.arg("--cli").args(server).args(words);
    for (name, value) in program.as_std().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let output = command.current_dir(tool.work()).output().await.unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {}", printed(&output)))
}

/// The same two requests, for any server.
async fn lists_and_calls(tool: &Tool<'_>, server: &[&str]) {
    let Some(inspector) = installed(INSPECTOR) else { return };
    let listed = inspect(tool, &inspector, server, &["--method", "tools/list"]).await;
    let tools = listed["tools"].as_array().unwrap();
    assert_eq!(tools[0]["name"], "containers", "{listed:#}");
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["operation"]));
    let call = ["--method", "tools/call", "--tool-name", "containers", "--tool-arg", "operation=list"];
    let answer = inspect(tool, &inspector, server, &call).await;
    assert_eq!(answer["structuredContent"]["success"], true, "{answer:#}");
}

#[tokio::test]
async fn the_protocols_own_inspector_lists_and_calls_the_tool() {
    with_engine("", async |tool| {
        let program = tool.command([] as [&str; 0]);
        let program = program.as_std();
        let value = |name: &str| program.get_envs().find(|it| it.0 == name).and_then(|it| it.1).unwrap();
        let variables =
            ["HOME", "XDG_STATE_HOME", "CORACLE_CONFIG"].map(|it| format!("{it}={}", value(it).to_str().unwrap()));
        let mut words = vec![program.get_program().to_str().unwrap(), "mcp"];
        words.extend(variables.iter().flat_map(|it| ["-e", it]));
        lists_and_calls(tool, &words).await;
    })
    .await;
}

#[tokio::test]
async fn the_inspector_does_so_over_http() {
    with_tool("", async |tool| {
        let server = Server::start(tool, &[]).await;
        let token = std::fs::read_to_string(&server.token_file).unwrap();
        let (url, header) =
            (format!("http://127.0.0.1:{}/mcp", server.port), format!("Authorization: Bearer {}", token.trim()));
        lists_and_calls(tool, &[&url, "--transport", "http", "--header", &header]).await;
    })
    .await;
}

/// It knows no tokens, so that ours is added on the way. What we do not have is named in `conformance.yml`, each with its
/// reason; a scenario that fails and is not there makes it fail, as does one there that passes.
#[tokio::test]
async fn the_official_conformance_suite_passes() {
    without_engine("", async |tool| {
        let Some(suite) = installed("node_modules/.bin/conformance") else { return };
        let server = Server::start(tool, &[]).await;
        let mut proxy = client("node");
        proxy.arg(ours("with_token.mjs")).arg(&server.token_file).arg(server.port.to_string());
        let mut proxy = proxy.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(proxy.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().expect("the proxy says its port");
        let mut suite = client(suite);
        suite.args(["server", "--suite", "all", "--url"]).arg(format!("http://127.0.0.1:{port}/mcp"));
        suite.arg("--expected-failures").arg(ours("conformance.yml")).current_dir(tool.work());
        let output = suite.output().await.unwrap();
        assert!(output.status.success(), "{}", printed(&output));
    })
    .await;
}

#[tokio::test]
async fn a_client_library_works_through_a_session() {
    let Some(python) = installed("python/bin/python") else { return };
    make_snippets().await;
    let mount = "[[workspace.mounts]]\nhost_path = \"project\"\n";
    let config = format!("[workspace]\nimage = \"{IMAGE}\"\n{mount}[run_code]\nimage = \"{SNIPPETS}\"\n");
    with_rootful_engine(&config, async |tool| {
        std::fs::create_dir(tool.work().join("project")).unwrap();
        let program = tool.command([] as [&str; 0]);
        let mut script = client(&python);
        script.arg(ours("session.py")).arg("all");
        script.arg(program.as_std().get_program()).arg("mcp").env_clear();
        for (name, value) in program.as_std().get_envs() {
            script.env(name, value.unwrap_or_default());
        }
        // The user inspects the session while it runs.
        script.env("CORACLE_SESSION", "client");
        let output = script.current_dir(tool.work()).output().await.unwrap();
        assert!(output.status.success(), "{}", printed(&output));
    })
    .await;
}

/// A client in a directory of its own, which its machine has, too.
async fn session_of(tool: &Tool<'_>, name: &str, mut command: Command) {
    let work = tool.work().join(name);
    std::fs::create_dir(&work).unwrap();
    command.env_clear().current_dir(work);
    for (name, value) in tool.command([] as [&str; 0]).as_std().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{name}: {}", printed(&output));
}

/// The inspector is not among them: its command line is one request, which it cannot cancel, and it shows no progress.
#[tokio::test]
async fn the_protocols_libraries_see_progress_and_cancel() {
    let tools = ["python/bin/python", "node_modules/@modelcontextprotocol/sdk"].map(installed);
    let [Some(python), Some(library)] = tools else { return };
    with_engine(&configured(""), async |tool| {
        let program = tool.command([] as [&str; 0]);
        let program = program.as_std().get_program();
        let mut script = client(&python);
        script.arg(ours("agent_session.py")).arg(program).arg("mcp");
        session_of(tool, "python", script).await;

        // Node searches packages in the directory of the script.
        let script = tool.work().join("agent_session.mjs");
        std::fs::copy(ours("agent_session.mjs"), &script).unwrap();
        let modules = library.parent().and_then(Path::parent).unwrap();
        std::os::unix::fs::symlink(modules, tool.work().join("node_modules")).unwrap();
        let mut stdio = client("node");
        stdio.arg(&script).arg("stdio").arg(program).arg("mcp");
        session_of(tool, "stdio", stdio).await;

        let server = Server::start(tool, &[]).await;
        let mut http = client("node");
        http.arg(&script).arg("http").arg(format!("http://127.0.0.1:{}/mcp", server.port)).arg(&server.token);
        session_of(tool, "http", http).await;
        let gone = async || tool.call(json!({ "operation": "list" })).await["count"] == 0;
        eventually("the machines go with their sessions", Duration::from_secs(30), gone).await;
    })
    .await;
}

#[tokio::test]
async fn a_refused_request_is_a_form_of_the_protocols_library() {
    let Some(python) = installed("python/bin/python") else { return };
    let served = Served::here();
    let person = Person::new(approvals::config(60));
    person
        .on_real_engines(async |tool| {
            let container = Proxied::create(tool, &served.url()).await;
            let mut script = client(&python);
            script.arg(ours("approval.py")).args([&*container.name, &container.fetch, "there"]);
            let program = tool.command([] as [&str; 0]);
            script.arg(program.as_std().get_program()).args(["--session", "default", "mcp", "--toolsets", "classic"]);
            session_of(tool, "form", script).await;
            container.destroy().await;
        })
        .await;
}

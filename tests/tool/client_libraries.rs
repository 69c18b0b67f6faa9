//! The packages for Python and TypeScript, with the program, on real engines.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use coracle_types::EngineKind;
use serde_json::{Value, json};
use tokio::process::Command;

use super::mcp_clients::installed;
use super::person::Person;
use super::{Tool, with_engine, without_engine};
use crate::engines::{IMAGE, LABEL, beside_tests, skip};
use crate::servers::model::{ModelServer, call, calls, says};

/// The directory of the clients.
fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("clients")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

/// An interpreter, of at least that version; where there is none, the test is skipped.
pub(super) async fn interpreter(names: &[&str], check: &[&str]) -> Option<PathBuf> {
    let path = crate::engines::variable("PATH").unwrap_or_default();
    for program in names.iter().flat_map(|name| path.split(':').map(move |dir| Path::new(dir).join(name))) {
        let output = if program.is_file() { foreign(&program).args(check).output().await.ok() } else { None };
        if output.is_some_and(|it| it.status.success()) {
            return Some(program);
        }
    }
    skip(&format!("needs {}", names[0]));
    None
}

#[expect(clippy::disallowed_methods, reason = "a foreign interpreter")]
fn foreign(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

pub(super) async fn python() -> Option<PathBuf> {
    let check = ["-c", "import sys; sys.exit(sys.version_info < (3, 11))"];
    let found = interpreter(&["python3", "python3.13", "python3.12", "python3.11"], &check).await?;
    is_generated("python/coracle/sync/client.py").then_some(found)
}

pub(super) async fn node() -> Option<PathBuf> {
    let check = ["-e", "process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)"];
    let found = interpreter(&["node", "nodejs"], &check).await?;
    is_generated("typescript/dist/index.js").then_some(found)
}

/// Whether the generated parts of a package exist; otherwise the test is skipped.
fn is_generated(file: &str) -> bool {
    let is_there = clients().join(file).exists();
    if !is_there {
        skip(&format!("needs clients/{file}, which `cargo xtask test` and `cargo xtask generate` write"));
    }
    is_there
}

/// A Python that builds the Python package.
fn builder() -> Option<PathBuf> {
    installed("python-build/bin/python")
}

/// A program in the user's environment, which finds `coracle` and the Python package.
pub(super) fn in_environment(tool: &Tool<'_>, program: &Path) -> Command {
    let ours = tool.command([] as [&str; 0]);
    let mut command = foreign(program);
    command.env_clear().current_dir(tool.work());
    for (name, value) in ours.as_std().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("CORACLE_BIN", ours.as_std().get_program()).env("PYTHONPATH", clients().join("python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

pub(super) fn succeeds(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn label(tool: &Tool<'_>) -> String {
    format!("{LABEL}={}", tool.case.container_label().1)
}

#[tokio::test]
async fn the_python_package_keeps_the_contract_of_containers() {
    let Some(python) = python().await else { return };
    with_engine("", async |tool| {
        let mut command = in_environment(tool, &python);
        succeeds(&command.arg(script("contract.py")).args([IMAGE, &label(tool)]).output().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn the_typescript_package_keeps_the_contract_of_containers() {
    let Some(node) = node().await else { return };
    with_engine("", async |tool| {
        let mut command = in_environment(tool, &node);
        command.arg(script("contract.mjs")).arg(clients().join("typescript")).args([IMAGE, &label(tool)]);
        succeeds(&command.output().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_program_in_typescript_removes_containers_at_the_end_of_a_block() {
    let (Some(node), Some(compiler)) = (node().await, installed("node_modules/typescript/bin/tsc")) else { return };
    without_engine("", async |tool| {
        package_for_node(tool);
        let modules = compiler.ancestors().find(|it| it.ends_with("node_modules")).unwrap();
        std::os::unix::fs::symlink(modules.join("@types"), tool.work().join("node_modules/@types")).unwrap();
        std::fs::copy(script("types.mts"), tool.work().join("types.mts")).unwrap();
        let mut command = in_environment(tool, &node);
        command.arg(&compiler).args(["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext"]);
        succeeds(&command.args(["--types", "node", "types.mts"]).output().await.unwrap());
    })
    .await;
}

/// A replacement for the program. It answers, exits or prints nonsense, depending on the call.
fn scripted_serve(tool: &Tool<'_>, python: &Path) -> PathBuf {
    let program = tool.work().join("scripted-serve");
    let text = format!("#!/bin/sh\nexec '{}' '{}'\n", python.display(), script("scripted_serve.py").display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[tokio::test]
async fn no_call_of_the_packages_waits_for_ever() {
    let (Some(python), Some(node)) = (python().await, node().await) else { return };
    without_engine("", async |tool| {
        let program = scripted_serve(tool, &python);
        let mut command = in_environment(tool, &python);
        succeeds(&command.arg(script("connection.py")).arg(&program).output().await.unwrap());
        let mut command = in_environment(tool, &node);
        command.arg(script("connection.mjs")).arg(clients().join("typescript")).arg(&program);
        succeeds(&command.output().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn the_command_of_a_package_starts_its_own_program_and_ends_with_it() {
    let (Some(python), Some(node)) = (python().await, node().await) else { return };
    without_engine("", async |tool| {
        let mut command = in_environment(tool, &python);
        succeeds(&command.arg(script("launcher.py")).output().await.unwrap());
        let mut command = in_environment(tool, &node);
        command.arg(script("launcher.mjs")).arg(clients().join("typescript"));
        succeeds(&command.output().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn the_document_that_clients_are_made_of_is_current() {
    // Settings for agents do not apply to programs.
    without_engine("[workspace]\ntoolsets = [\"code\"]\n", async |tool| {
        let output = tool.run(["serve", "--openapi"], b"").await;
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let open_api = std::fs::read(clients().join("openapi.json")).unwrap();
        let is_current = printed == serde_json::from_slice::<Value>(&open_api).unwrap();
        assert!(is_current, "run `cargo build && cargo xtask generate`");
    })
    .await;
}

/// A model that runs one command and then ends.
async fn model() -> ModelServer {
    let server = ModelServer::start().await;
    server.then([calls([call("shell", json!({ "command": "echo $((6 * 7)) > n; cat n" }))]), says("It is 42.")]);
    server
}

async fn agent_works(mut command: Command, example: &Path) {
    let model = model().await;
    command.arg(example).arg("How much is 6 times 7?").env("OPENAI_BASE_URL", model.url()).env("IMAGE", IMAGE);
    assert_eq!(succeeds(&command.output().await.unwrap()), "It is 42.\n");
    let requests = model.requests();
    assert_eq!(requests[1].texts_of("tool"), ["exit code 0\n42\n"]);
}

/// Installs the package where programs in the working directory find it.
pub(super) fn package_for_node(tool: &Tool<'_>) {
    let modules = tool.work().join("node_modules");
    std::fs::create_dir_all(&modules).unwrap();
    std::os::unix::fs::symlink(clients().join("typescript"), modules.join("coracle-client")).unwrap();
}

/// An example as a person has it, in a directory that has the package.
fn example_beside_package(tool: &Tool<'_>, name: &str) -> PathBuf {
    package_for_node(tool);
    let example = tool.work().join(name);
    std::fs::copy(clients().join("typescript/examples").join(name), &example).unwrap();
    example
}

#[tokio::test]
async fn the_examples_of_an_agent_work() {
    let (Some(python), Some(node)) = (python().await, node().await) else { return };
    with_engine("", async |tool| {
        agent_works(in_environment(tool, &python), &clients().join("python/examples/agent.py")).await;
        let example = example_beside_package(tool, "agent.mjs");
        agent_works(in_environment(tool, &node), &example).await;
        assert_eq!(tool.call(json!({ "operation": "list" })).await["count"], 0);
    })
    .await;
}

/// The frameworks know nothing of engines.
#[tokio::test]
async fn the_adapters_give_agent_frameworks_the_tools_of_a_machine() {
    let Some(python) = installed("python/bin/python") else { return };
    let check = ["-c", "import agents, pydantic_ai"];
    if !foreign(&python).args(check).output().await.unwrap().status.success() {
        return skip("needs agent frameworks, which `cargo xtask test` installs");
    }
    Person::new("")
        .on_one_engine(EngineKind::Embedded, async |tool| {
            let examples = clients().join("python/examples");
            let mut command = in_environment(tool, &python);
            command.arg(examples.join("pydantic_ai_agent.py")).arg("By a script.").env("IMAGE", IMAGE);
            let reported = succeeds(&command.output().await.unwrap());
            let expected = "write: Wrote n.txt.\nedit: Edited n.txt.\nread:    1 | 6 times 7\nread: file_not_found: ";
            assert!(
                reported.starts_with(expected) && reported.ends_with("6 times 7\n[ended with exit code 3]\n"),
                "{reported}"
            );

            let model = model().await;
            let mut command = in_environment(tool, &python);
            command.arg(examples.join("openai_agents_agent.py")).arg("How much is 6 times 7?").env("IMAGE", IMAGE);
            command.env("OPENAI_BASE_URL", model.url()).env("OPENAI_API_KEY", "k");
            assert_eq!(succeeds(&command.output().await.unwrap()), "It is 42.\n");
            let requests = model.requests();
            assert_eq!(requests[1].texts_of("tool"), ["42\n"]);
            let offered = requests[0].body["tools"].as_array().unwrap().iter().map(|it| &it["function"]["name"]);
            assert_eq!(offered.collect::<Vec<_>>(), ["shell", "read", "write", "edit", "python"]);
        })
        .await;
}

/// With more containers at once than the tests' configuration allows.
async fn evaluates(tool: &Tool<'_>, mut command: Command, example: &Path) {
    let config = tool.work().join("many.toml");
    let own = std::fs::read_to_string(tool.work().parent().unwrap().join("config.toml")).unwrap();
    std::fs::write(&config, own.replace("= 60\n", "= 300\n")).unwrap();
    command.arg(example).arg("100").env("IMAGE", IMAGE).env("CORACLE_CONFIG", config);
    let reported = succeeds(&command.output().await.unwrap());
    assert!(reported.starts_with("100 of 100 passed"), "{reported}");
}

#[tokio::test]
async fn the_examples_of_an_evaluation_use_a_hundred_containers_concurrently() {
    let (Some(python), Some(node)) = (python().await, node().await) else { return };
    with_engine("", async |tool| {
        if tool.case.engine() != EngineKind::Embedded {
            return tool.case.left_out();
        }
        evaluates(tool, in_environment(tool, &python), &clients().join("python/examples/evaluation.py")).await;
        let example = example_beside_package(tool, "evaluation.mjs");
        evaluates(tool, in_environment(tool, &node), &example).await;
    })
    .await;
}

#[tokio::test]
async fn the_python_package_is_built_and_installed_in_each_way_that_pip_knows() {
    let Some(python) = builder() else { return };
    let package = clients().join("python");
    succeeds(&foreign(&python).arg(script("packaging.py")).arg(package).output().await.unwrap());
}

/// Runs a program to its end, in a directory.
async fn done(mut command: Command, dir: &Path) -> String {
    succeeds(&command.current_dir(dir).output().await.unwrap())
}

/// A program of this machine, with its arguments.
fn typed(program: impl AsRef<Path>, words: &[&str]) -> Command {
    let mut command = foreign(program.as_ref());
    command.args(words);
    command
}

#[tokio::test]
async fn the_packages_have_the_program_and_install_without_a_network() {
    let (Some(python), Some(npm)) = (python().await, interpreter(&["npm"], &["--version"]).await) else { return };
    let (Some(_), Some(_)) = (builder(), installed("node_modules/typescript/bin/tsc")) else { return };
    let (work, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // In place of the program, which takes a minute to compress where it is not optimised.
    let program = work.path().join("program");
    std::fs::write(&program, "#!/bin/sh\necho coracle \"$@\"\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut build = typed(beside_tests("xtask"), &["package"]);
    build.arg(&program).arg(out.path());
    done(build, work.path()).await;
    let built: Vec<PathBuf> = std::fs::read_dir(out.path()).unwrap().map(|it| it.unwrap().path()).collect();
    let package = |end: &str| built.iter().find(|it| it.to_str().unwrap().ends_with(end)).unwrap().to_str().unwrap();
    let version = "coracle --version\n";

    done(typed(&python, &["-m", "venv", "venv"]), work.path()).await;
    let pip = ["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", package(".whl")];
    done(typed(work.path().join("venv/bin/python"), &pip), work.path()).await;
    assert_eq!(done(typed(work.path().join("venv/bin/coracle"), &["--version"]), work.path()).await, version);
    let find = ["-c", "import coracle._program as it; print(it.find_program())"];
    let mut find = typed(work.path().join("venv/bin/python"), &find);
    find.env_remove("CORACLE_BIN");
    assert!(done(find, work.path()).await.trim_end().ends_with("site-packages/coracle/bin/coracle"));

    std::fs::write(work.path().join("package.json"), "{}").unwrap();
    let install = ["install", "--silent", "--offline", "--no-audit", "--no-fund", package(".tgz")];
    done(typed(&npm, &install), work.path()).await;
    assert_eq!(done(typed(work.path().join("node_modules/.bin/coracle"), &["--version"]), work.path()).await, version);
}

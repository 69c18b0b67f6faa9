//! End-to-end tests: `coracle call` on engines, and the library on the fake, whose state ends with its process.

mod agent_answers;
mod agent_tools;
pub(crate) mod approvals;
mod argument_limits;
mod auto_engine;
mod bind;
mod cache;
mod callers;
mod canary;
mod checkpoints;
mod client_libraries;
mod command_line;
mod container;
mod content;
mod copied_images;
mod copy;
mod crash;
mod create;
mod create_devcontainer;
mod debian;
mod e2b;
mod env;
mod exec;
mod first_hour;
mod forward;
mod git_guard;
mod golden;
mod guest;
mod health;
mod hostile_programs;
mod hostile_session;
mod identity;
mod input;
mod interrupted_bench;
mod jobs;
mod kubernetes;
mod kubernetes_pool;
mod leases;
mod main_program;
mod mcp;
mod mcp_clients;
mod mcp_http;
mod mcp_messages;
mod mcp_results;
mod mcp_tools;
mod messages;
mod mounts;
mod names;
mod networks;
mod newcomer;
mod observability;
mod odd_images;
mod outputs;
mod pages;
mod person;
mod policy;
mod preflight;
mod preflight_cache;
mod projects;
mod proxied;
mod proxy_process;
mod prune;
mod race;
mod recorded;
mod redact;
mod remote_engine;
mod remove;
mod review;
mod rootless;
mod rust_client;
mod sandbox;
mod saved;
mod serve;
mod serve_http;
mod servers;
mod shell;
mod snapshot_archives;
mod snapshots;
mod stack_mounts;
mod stack_rules;
mod stacks;
mod stand_ins;
mod start_adopt;
mod strict;
mod strict_create;
mod terminal;
mod tokens;
mod try_repo;
pub(crate) mod ui;
mod upgrade;
mod users;
mod values;
mod work;
mod wrong_values;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use coracle::CallInput;
use coracle_context::{Frontend, Host, Options};
use coracle_prepare::Process;
use coracle_types::{EngineKind, Secret};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use self::person::{Person, ToolCheck};
use self::preflight_cache::Verdict;
use crate::engines::{Case, IMAGE, KubeCluster, LABEL, Lack, beside_tests, engine_program, variable};

/// A person with a state directory on one engine.
pub(crate) struct Tool<'a> {
    pub(crate) case: &'a Case,
    root: TempDir,
    /// The user's variables.
    env: BTreeMap<String, String>,
    /// The library with a fake; `None` if the program is used.
    library: Option<Process>,
    verdict: Option<Verdict>,
}

/// Runs a check with a new state directory on every engine, and destroys leftovers.
pub(crate) async fn with_tool(config: &str, check: impl AsyncFn(&Tool<'_>)) {
    Person::new(config).on_every_engine_and_rootless(check).await;
}

/// As [`with_tool`], on real engines only: the check concerns the engine, or needs several processes.
pub(crate) async fn with_engine(config: &str, check: impl AsyncFn(&Tool<'_>)) {
    with_real_engine(config, &check).await;
}

async fn with_real_engine(config: &str, check: ToolCheck<'_>) {
    with_tool(config, async |tool| match tool.case.is_real() {
        true => check.on(tool).await,
        false => tool.case.left_out(),
    })
    .await;
}

/// Like [`with_tool`], only on the fake: the check ends before an engine is used.
pub(crate) async fn without_engine(config: &str, check: impl AsyncFn(&Tool<'_>)) {
    Person::new(config).on_the_fake(check).await;
}

/// As [`with_tool`], on engines with root: content of a container is tested there.
pub(crate) async fn with_rootful_tool(config: &str, check: impl AsyncFn(&Tool<'_>)) {
    Person::new(config).on_every_engine(check).await;
}

/// As [`with_engine`], on engines with root.
pub(crate) async fn with_rootful_engine(config: &str, check: impl AsyncFn(&Tool<'_>)) {
    Person::new(config).on_real_engines(check).await;
}

/// As [`with_rootful_tool`], where the engine enforces limits, as the policy `strict` demands.
pub(crate) async fn with_limited_tool(config: &str, check: impl AsyncFn(&Tool<'_>)) {
    with_rootful_tool(config, async |tool| {
        if !tool.case.lacks(Lack::EnforcedLimits) {
            check(tool).await;
        }
    })
    .await;
}

/// As [`with_limited_tool`], on real engines only.
pub(crate) async fn with_limited_engine(config: &str, check: impl AsyncFn(&Tool<'_>)) {
    with_limited_tool(config, async |tool| match tool.case.is_real() {
        true => check(tool).await,
        false => tool.case.left_out(),
    })
    .await;
}

/// By default agents of tests get all tools except those of the agent's machine.
fn with_toolsets(config: String) -> String {
    let toolsets = "[workspace]\ntoolsets = [\"classic\", \"workspace\", \"code\", \"worktrees\"]\n";
    match config.contains("toolsets =") {
        true => config,
        false if config.contains("[workspace]\n") => config.replacen("[workspace]\n", toolsets, 1),
        false => format!("{config}\n{toolsets}"),
    }
}

impl<'a> Tool<'a> {
    fn new(case: &'a Case, person: &Person) -> Self {
        let (root, config) = (tempfile::tempdir().unwrap(), &person.config);
        for dir in ["home", "work", "state", "tmp"] {
            std::fs::create_dir(root.path().join(dir)).unwrap();
        }
        // By default the tests act as a user who may see all sessions.
        let path = case.program().map(|it| format!("engine_path = {it:?}\n")).unwrap_or_default();
        let data = case.engine_data().map(|it| format!("engine_data = {it:?}\n")).unwrap_or_default();
        let engine = format!("engine = \"{}\"\n{path}{data}", case.engine());
        let config = format!("{engine}max_containers = 60\nmax_containers_total = 60\n{config}");
        let config = with_toolsets(config) + &case.kube().map(KubeCluster::config).unwrap_or_default();
        let config = case.with_image(&config);
        let config = match (config.contains("cross_session"), config.contains("[security]")) {
            (true, _) => config,
            (false, true) => config.replace("[security]", "[security]\ncross_session = \"all\""),
            (false, false) => format!("{config}\n[security]\ncross_session = \"all\"\n"),
        };
        let verdict = Verdict::hand_over(case, person, &config, &root.path().join("state/coracle"));
        std::fs::write(root.path().join("config.toml"), config).unwrap();
        let env = person.env_in(root.path());
        if case.is_rootless() && case.engine() == EngineKind::Podman {
            shares_images(&root.path().join("home"));
        }
        let library = case.fake().map(|fake| {
            let secret = |it: (&String, &String)| (it.0.clone(), Secret::new(it.1.clone().into_bytes()));
            let execution_mode = env.get("EXECUTION_MODE").cloned();
            let env = env.iter().map(secret).collect();
            let host = Host { env, execution_mode, ..Host::below(&root.path().canonicalize().unwrap()) };
            let options = Options { config: Some(root.path().join("config.toml")), ..Options::default() };
            Process::open(host, &options, Frontend::Call).unwrap().with_fake(fake)
        });
        Self { case, root, env, library, verdict }
    }

    /// The working directory.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// The user's home.
    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The directory for temporary files of the program and the engine.
    pub(crate) fn temp(&self) -> PathBuf {
        self.root.path().join("tmp")
    }

    /// The state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.root.path().join("state/coracle")
    }

    /// The record of a session's container, which the record of its slot refers to.
    pub(crate) fn slot_container(&self, session: &str, role: &str) -> Option<Value> {
        let read = |path: PathBuf| serde_json::from_slice::<Value>(&std::fs::read(path).ok()?).ok();
        let slot = read(self.state().join("sessions").join(session).join(format!("{role}.json")))?;
        read(self.state().join("containers").join(slot["name"].as_str()?).join("metadata.json"))
    }

    /// Passes the result of preflight to the next test.
    fn hand_on_verdict(&self) {
        if let Some(verdict) = &self.verdict {
            verdict.take_back(&self.state());
        }
    }

    /// Removes leftovers of all sessions, even if the test limited what its session may see.
    fn may_destroy_all(&self) {
        let file = self.root.path().join("config.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let all = "cross_session = \"all\"";
        let text =
            ["none", "use"].iter().fold(text, |text, it| text.replace(&format!("cross_session = \"{it}\""), all));
        std::fs::write(file, text).unwrap();
    }

    pub(crate) async fn call(&self, call: Value) -> Value {
        self.call_text(call.to_string()).await
    }

    /// Checks that an answer is one JSON object on stdout, with the right exit status.
    pub(crate) async fn call_text(&self, call: String) -> Value {
        let call = self.case.with_image(&call);
        if let Some(process) = &self.library {
            return coracle::execute(coracle::operations::ALL, process, CallInput::Text(call.into_bytes()))
                .await
                .json
                .into();
        }
        let output = self.run(["call", "-"], call.as_bytes()).await;
        let answer: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|err| panic!("{err}: {}", String::from_utf8_lossy(&output.stderr)));
        let expected = match (answer["success"].as_bool(), answer["code"].as_str()) {
            (Some(true), _) => 0,
            (_, Some("invalid_json")) => 2,
            _ => 1,
        };
        assert_eq!(output.status.code(), Some(expected), "{answer}");
        answer
    }

    /// A `create` of the busybox image, which is cleaned up in any case.
    pub(crate) async fn create(&self, more: Value) -> Value {
        self.call(self.create_call(more)).await
    }

    /// As [`create`](Self::create), which must succeed: returns the name.
    pub(crate) async fn created(&self, more: Value) -> String {
        let answer = self.create(more).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        answer["container"].as_str().unwrap().to_owned()
    }

    pub(crate) fn create_call(&self, more: Value) -> Value {
        let run = self.case.container_label().1;
        let mut call = json!({ "operation": "create", "image": IMAGE, "mount_cwd": false, "labels": { LABEL: run } });
        merge(call.as_object_mut().unwrap(), more);
        self.to_servers_here(call)
    }

    /// A call whose container fetches from a server of this host. The networks of the embedded engine lead to this host only
    /// for containers that name it.
    pub(crate) fn to_servers_here(&self, mut call: Value) -> Value {
        let fetches = ["repos", "dotfiles_repo", "repo_url"].iter().any(|it| call[*it].to_string().contains("http://"));
        if fetches && self.case.engine() == EngineKind::Embedded && call["add_hosts"].is_null() {
            call["add_hosts"] = json!(["host.docker.internal:host-gateway"]);
        }
        call
    }

    pub(crate) async fn exec(&self, container: &str, command: impl Into<Value>) -> Value {
        let command: Value = command.into();
        self.call(json!({ "operation": "exec", "container": container, "command": command })).await
    }

    /// The output of a command, which must succeed.
    pub(crate) async fn prints(&self, container: &str, command: &str) -> String {
        let answer = self.exec(container, command).await;
        assert_eq!((&answer["success"], &answer["exit_code"]), (&true.into(), &0.into()), "{command}: {answer:#}");
        answer["stdout"].as_str().unwrap().trim_end().to_owned()
    }

    /// Runs the program to its end.
    pub(crate) async fn run(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>, stdin: &[u8]) -> Output {
        use tokio::io::AsyncWriteExt;
        let mut command = self.command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let feed = async {
            let _ = pipe.write_all(stdin).await;
            drop(pipe);
        };
        let (_, output) = tokio::join!(feed, child.wait_with_output());
        output.unwrap()
    }

    /// The program with this user's directories and no other variables of the tests.
    pub(crate) fn command(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = program();
        command
            .args(words)
            .env_clear()
            .envs(&self.env)
            .env("HOME", self.home())
            .env("XDG_STATE_HOME", self.root.path().join("state"))
            .env("CORACLE_CONFIG", self.root.path().join("config.toml"))
            .env("TMPDIR", self.temp())
            .current_dir(self.work())
            .kill_on_drop(true);
        if let Some(dir) = variable("XDG_RUNTIME_DIR").filter(|_| self.case.is_rootless()) {
            command.env("XDG_RUNTIME_DIR", dir);
        }
        command
    }

    /// Runs a command line of the user. `coracle` is the tested program, with the user's variables.
    pub(crate) fn as_typed(&self, line: &str) -> String {
        let Some(words) = line.strip_prefix("coracle ") else { return line.to_owned() };
        let (root, program) = (self.root.path().display(), beside_tests("coracle"));
        format!(
            "cd {root}/work && env -i PATH=/usr/bin:/bin TERM=xterm HOME={root}/home XDG_STATE_HOME={root}/state \
             CORACLE_CONFIG={root}/config.toml TMPDIR={root}/tmp {} {words}",
            program.display()
        )
    }

    /// The records in the state directory.
    pub(crate) fn records(&self) -> Vec<PathBuf> {
        let dir = self.state().join("containers");
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        entries.map(|it| it.unwrap().path().join("metadata.json")).filter(|it| it.exists()).collect()
    }

    /// The engine's own program, past Coracle.
    pub(crate) async fn engine(&self, words: &[&str]) -> (bool, String) {
        let mut command = engine_program(self.case.engine().as_str());
        let output = command.args(words).stdin(Stdio::null()).output().await.unwrap();
        if !output.status.success() {
            eprintln!("{words:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Polls until the condition holds, for effects of other processes.
pub(crate) async fn eventually(what: &str, within: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let give_up = tokio::time::Instant::now() + within;
    while !holds().await {
        assert!(tokio::time::Instant::now() < give_up, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn merge(into: &mut Map<String, Value>, more: Value) {
    let Value::Object(more) = more else { panic!("an object") };
    into.extend(more);
}

/// Podman without root keeps its images below the home. This user has a home of their own, so Podman is given the other
/// path.
fn shares_images(home: &Path) {
    let conf = ".config/containers/storage.conf";
    let real = PathBuf::from(variable("HOME").unwrap());
    let runtime = variable("XDG_RUNTIME_DIR").unwrap();
    let text = std::fs::read_to_string(real.join(conf)).unwrap_or_else(|_| {
        let storage = real.join(".local/share/containers/storage");
        format!("[storage]\ndriver = \"overlay\"\ngraphroot = {storage:?}\nrunroot = \"{runtime}/containers\"\n")
    });
    std::fs::create_dir_all(home.join(conf).parent().unwrap()).unwrap();
    std::fs::write(home.join(conf), text).unwrap();
}

/// The program that was built together with this test.
#[expect(clippy::disallowed_methods, reason = "a test starts the program that it tests")]
fn program() -> Command {
    Command::new(beside_tests("coracle"))
}

//! The tools of a session on its containers.

pub(super) mod code;
mod files;
mod limits;
mod messages;
mod mounts;
mod named;
mod network;
pub(super) mod secrets;
mod sessions;
mod shell;
mod strict;
mod trust;

use coracle_context::{Frontend, Host, Options};
use coracle_prepare::Process;
use coracle_types::EngineKind;
use serde_json::{Map, Value};

use super::Tool;
use super::person::Person;
use crate::engines::{Case, Check, IMAGE, caught};

/// An agent: one session of a process.
pub(super) struct Agent<'a> {
    tool: &'a Tool<'a>,
    pub(super) process: Process,
}

/// A check with an agent.
type AgentCheck<'a> = &'a (dyn for<'c> Check<Agent<'c>> + 'a);

/// Runs a check with an agent whose workspace uses a small image, on every engine with root.
async fn with_agent(config: &str, check: impl AsyncFn(&Agent<'_>)) {
    with_agent_of(&Person::new(configured(config)), &check).await;
}

/// As [`with_agent`], for a person with a variable.
async fn with_agent_and_env(config: &str, (name, value): (&str, &str), check: impl AsyncFn(&Agent<'_>)) {
    with_agent_of(&Person::new(configured(config)).with_env(name, value), &check).await;
}

async fn with_agent_of(person: &Person, check: AgentCheck<'_>) {
    person.on_every_engine(async |tool| in_session(tool, check).await).await;
}

/// As [`with_agent`], on real engines only.
async fn with_real_agent(config: &str, check: impl AsyncFn(&Agent<'_>)) {
    with_agent_on_real_engines(config, &check).await;
}

async fn with_agent_on_real_engines(config: &str, check: AgentCheck<'_>) {
    Person::new(configured(config)).on_real_engines(async |tool| in_session(tool, check).await).await;
}

/// Like [`with_agent`], only on that engine.
pub(super) async fn with_agent_on(engine: EngineKind, config: &str, check: impl AsyncFn(&Agent<'_>)) {
    Person::new(configured(config)).on_one_engine(engine, async |tool| in_session(tool, &check).await).await;
}

/// A configuration with the small image, unless the test sets another one.
fn configured(config: &str) -> String {
    if config.contains("\nimage =") || config.starts_with("image =") {
        return config.to_owned();
    }
    let own = format!("[workspace]\nimage = \"{IMAGE}\"\n");
    match config.split_once("[workspace]\n") {
        Some((before, after)) => format!("{before}{own}{after}"),
        None => format!("{config}\n{own}"),
    }
}

async fn in_session(tool: &Tool<'_>, check: AgentCheck<'_>) {
    let agent = Agent::new(tool, "agent-1");
    let checked = caught(check.on(&agent)).await;
    agent.end().await;
    if let Err(panic) = checked {
        std::panic::resume_unwind(panic);
    }
}

impl<'a> Agent<'a> {
    /// Another session of the same user.
    pub(super) fn new(tool: &'a Tool<'a>, session: &str) -> Self {
        let process = match &tool.library {
            Some(process) => {
                let mut process = process.for_session();
                process.context.call.session = coracle_types::ContainerName::parse(session).unwrap();
                process
            }
            None => {
                let env = tool.env.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
                let root = tool.root.path().canonicalize().unwrap();
                let execution_mode = tool.env.get("EXECUTION_MODE").cloned();
                let host = Host { env, execution_mode, state_home: root.join("state"), ..Host::below(&root) };
                let config = Some(root.join("config.toml"));
                let options = Options { config, session: Some(session.into()), ..Options::default() };
                Process::open(host, &options, Frontend::Mcp).unwrap()
            }
        };
        Self { tool, process }
    }

    pub(super) async fn end(&self) -> Map<String, Value> {
        coracle_prepare::session_tools::end(&self.process.context).await.unwrap()
    }

    pub(super) async fn call(&self, name: &str, arguments: Value) -> Value {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        coracle::tools::execute_named(&self.process, name, arguments).await.expect("the tool is there").json.into()
    }

    /// A call that has to succeed: its value.
    pub(super) async fn value(&self, name: &str, arguments: Value) -> Value {
        let answer = self.call(name, arguments).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        answer["value"].clone()
    }

    /// A call that has to fail: its code.
    pub(super) async fn code(&self, name: &str, arguments: Value) -> String {
        let answer = self.call(name, arguments).await;
        assert_eq!(answer["success"], false, "{answer:#}");
        assert_eq!(answer["error"], answer["message"]);
        answer["code"].as_str().unwrap().to_owned()
    }

    /// Runs a script in the container's shell, with any exit code.
    pub(super) async fn sh(&self, script: &str) -> Value {
        self.value("shell_execute", serde_json::json!({ "command": ["sh", "-c", script] })).await
    }

    pub(super) fn case(&self) -> &Case {
        self.tool.case
    }

    fn engine(&self) -> EngineKind {
        self.tool.case.engine()
    }

    /// The container of a role, by the session's record.
    pub(super) fn container(&self, role: &str) -> Option<String> {
        let record = self.tool.slot_container(self.process.context.call.session.as_str(), role)?;
        record["id"].as_str().map(str::to_owned)
    }
}

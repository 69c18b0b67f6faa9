//! Commands: `shell`, `job` and `python`.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_context::arg_types::{Name, Script, Seconds};
use coracle_context::failure::{Code, Failure};
use coracle_prepare::process::Process;
use coracle_types::{Command, Handle, JobId};
use coracle_workspace::{Effect, EvaluatePython};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::AgentTool;
use super::inner_call::{ContainerChoice, InnerCall};
use crate::commands::{
    CommandRequest, Exec, ExecBackground, ExecCancel, JobRead, JobWait, Jobs, OnTimeout, OutputSelection, PortRequest,
    RestCall, WaitCondition, WaitConditions,
};

/// Time that a call waits. Clients give up after a minute, and the command goes on as a job.
const WAIT: Seconds = Seconds(Duration::from_secs(50));

/// Run a shell command. What still runs after `timeout` goes on as a job. Example: {"command": "pytest -q"}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ShellTool {
    /// Shell text.
    command: String,
    /// Directory; else the work directory.
    workdir: Option<String>,
    #[schemars(with = "Option<Map<String, Value>>")]
    env: Option<BTreeMap<String, Value>>,
    stdin: Option<String>,
    as_root: Option<bool>,
    /// Seconds.
    #[schemars(with = "Option<f64>", extend("default" = WAIT.0.as_secs()))]
    timeout: Option<Seconds>,
    /// Start it as a job at once, such as a server.
    background: Option<bool>,
    /// Name; else your machine.
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

impl AgentTool for ShellTool {
    const NAME: &'static str = "shell";

    fn inner_call(mut self, process: &Process, mut args: Map<String, Value>) -> Result<InnerCall, Failure> {
        let (container, choice) = ContainerChoice::new(process, self.container.take(), &mut args)?;
        if self.background == Some(true) {
            return Ok(InnerCall::operation(self.into_job(container)?, choice, args));
        }
        Ok(InnerCall::operation(self.into_exec(container), choice, args))
    }
}

impl ShellTool {
    fn into_exec(self, container: Handle) -> Exec {
        let timeout = Some(self.timeout.unwrap_or(WAIT));
        let (on_timeout, rest) = (Some(OnTimeout::Keep), RestCall::ContainersTool);
        Exec { request: self.into_request(container), timeout, on_timeout, max_output: None, encoding: None, rest }
    }

    fn into_job(self, container: Handle) -> Result<ExecBackground, Failure> {
        if !is_usual(self.timeout) {
            return Err(Failure::conflicting(&["timeout", "background"], "a job has no time limit here").hint(
                "leave `timeout` out: `job` cancels the command; `exec_background` of `containers` has a `timeout`",
            ));
        }
        Ok(ExecBackground { request: self.into_request(container), timeout: None })
    }

    fn into_request(self, container: Handle) -> CommandRequest {
        CommandRequest {
            container,
            command: Script(Command::Shell(self.command)),
            silence_timeout: None,
            workdir: self.workdir,
            env: self.env,
            stdin: self.stdin,
            stdin_base64: None,
            as_root: self.as_root,
        }
    }
}

/// Whether a time is not given, or is the default, which models copy from the schema.
fn is_usual(timeout: Option<Seconds>) -> bool {
    timeout.is_none_or(|timeout| timeout == WAIT)
}

/// What to do with a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum JobAction {
    #[default]
    Wait,
    Read,
    Cancel,
    List,
}

/// Follow a job: wait for its end (or `pattern` or `port`), read its output, cancel it; or list jobs. Example: {"job": "1f0c9a2e",
/// "port": 8000}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct JobTool {
    #[schemars(with = "Option<Name>")]
    job: Option<JobId>,
    #[schemars(extend("default" = "wait"))]
    action: Option<JobAction>,
    /// Regex: wait for or read lines that match.
    pattern: Option<String>,
    /// Wait until it accepts connections.
    #[schemars(with = "Option<u16>")]
    port: Option<PortRequest>,
    /// Seconds to wait.
    #[schemars(with = "Option<f64>", extend("default" = WAIT.0.as_secs()))]
    timeout: Option<Seconds>,
    /// Output byte to begin at, else 0.
    offset: Option<i64>,
    /// Name; else your machine.
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

impl AgentTool for JobTool {
    const NAME: &'static str = "job";

    fn inner_call(mut self, process: &Process, mut args: Map<String, Value>) -> Result<InnerCall, Failure> {
        let action = self.action.unwrap_or_default();
        self.check_fields(action)?;
        if let Some(job) = args.remove("job") {
            args.insert("job_id".into(), job);
        }
        let (container, choice) = ContainerChoice::new(process, self.container.take(), &mut args)?;
        let Some(job_id) = self.job.take() else {
            return Ok(InnerCall::operation(Jobs { container: Some(container) }, choice, args));
        };
        Ok(match action {
            JobAction::List => InnerCall::operation(Jobs { container: Some(container) }, choice, args),
            JobAction::Cancel => InnerCall::operation(ExecCancel { container, job_id, grace: None }, choice, args),
            JobAction::Read => {
                let selection = OutputSelection { pattern: self.pattern, ..OutputSelection::default() };
                InnerCall::operation(JobRead { container, job_id, offset: self.offset, selection }, choice, args)
            }
            JobAction::Wait => InnerCall::operation(self.into_wait(container, job_id), choice, args),
        })
    }
}

impl JobTool {
    fn into_wait(self, container: Handle, job_id: JobId) -> JobWait {
        let conditions = [
            self.pattern.is_some().then_some(WaitCondition::Regex),
            self.port.is_some().then_some(WaitCondition::Port),
            Some(WaitCondition::Exit),
        ];
        JobWait {
            container,
            job_id,
            until: Some(WaitConditions(conditions.into_iter().flatten().collect())),
            offset: self.offset.or(self.pattern.is_some().then_some(0)),
            pattern: self.pattern,
            port: self.port,
            idle: None,
            timeout: Some(self.timeout.unwrap_or(WAIT)),
        }
    }

    /// Refuses a job that is missing, and a field that the action does not read: the caller expects something of it.
    fn check_fields(&self, action: JobAction) -> Result<(), Failure> {
        use JobAction::{Cancel, List, Read, Wait};

        if self.job.is_none() && action != List {
            return Err(Failure::new(Code::MissingField, "required: `job`").detail("fields", ["job"]).hint(
                "give the job's id, which the call that started it answered; `\"action\": \"list\"` lists jobs",
            ));
        }
        let has_timeout = !is_usual(self.timeout);
        let fields: [(&str, bool, &[JobAction]); 5] = [
            ("job", self.job.is_some(), &[Wait, Read, Cancel]),
            ("pattern", self.pattern.is_some(), &[Wait, Read]),
            ("offset", self.offset.is_some(), &[Wait, Read]),
            ("port", self.port.is_some(), &[Wait]),
            ("timeout", has_timeout, &[Wait]),
        ];
        match fields.iter().find(|(_, is_given, readers)| *is_given && !readers.contains(&action)) {
            None => Ok(()),
            Some((field, ..)) => {
                Err(Failure::invalid("action", format!("`{field}` is given, and this one does not read it"))
                    .hint(format!("leave `{field}` out; the action `wait` reads it")))
            }
        }
    }
}

/// Run Python, at most 50 s. Variables stay; the last expression, plots and tables are shown. Example: {"code": "6 * 7"}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PythonTool {
    code: String,
    /// Forget earlier variables.
    restart: Option<bool>,
    /// Name; else your machine.
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

impl AgentTool for PythonTool {
    const NAME: &'static str = "python";
    const EFFECT: Effect = Effect::Mutating;

    fn inner_call(self, process: &Process, args: Map<String, Value>) -> Result<InnerCall, Failure> {
        let Self { code, restart, container } = self;
        let tool = EvaluatePython { code, persistent: Some(true), restart, ..EvaluatePython::default() };
        InnerCall::tool(tool, process, container, args)
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::context::Context;
    use coracle_prepare::process::Process;
    use serde_json::{Map, Value, json};

    use super::{AgentTool, Handle, InnerCall, JobTool, OnTimeout, ShellTool, WAIT};

    /// The operation that a tool calls, or why it calls none.
    fn callee<T: AgentTool>(arguments: Value) -> Result<&'static str, String> {
        let dir = tempfile::tempdir().unwrap();
        let tool: T = serde_json::from_value(arguments).unwrap();
        match tool.inner_call(&Process::new(Context::for_tests(dir.path())), Map::new()) {
            Ok(InnerCall::Call { call, .. }) => Ok(call.entry.name),
            Ok(InnerCall::Text(text)) => panic!("{text}"),
            Err(failure) => Err(format!("{}: {}", failure.code.word(), failure.message)),
        }
    }

    #[test]
    fn a_command_in_the_background_is_ended_by_no_time_limit() {
        let shell = |timeout: Value| {
            callee::<ShellTool>(json!({ "command": "npm run dev", "background": true, "timeout": timeout }))
        };
        for usual in [Value::Null, json!(50), json!(50.0)] {
            assert_eq!(shell(usual).unwrap(), "exec_background");
        }
        assert_eq!(shell(json!(600)).unwrap_err(), "conflicting_fields: a job has no time limit here");
        let waited: ShellTool = serde_json::from_value(json!({ "command": "true" })).unwrap();
        let waited = waited.into_exec(Handle::parse("web").unwrap());
        assert_eq!((waited.timeout, waited.on_timeout), (Some(WAIT), Some(OnTimeout::Keep)));
    }

    #[test]
    fn a_field_that_an_action_does_not_read_is_refused() {
        let job = |action: &str, more: Value| {
            let mut arguments = json!({ "job": "1f0c9a2e", "action": action });
            arguments.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            callee::<JobTool>(arguments)
        };
        for (action, more, callee) in [
            ("wait", json!({ "pattern": "up", "port": 80, "timeout": 5, "offset": 9 }), "job_wait"),
            ("read", json!({ "pattern": "up", "offset": 9, "timeout": 50 }), "job_read"),
            ("read", json!({ "timeout": 50.0 }), "job_read"),
            ("cancel", json!({}), "exec_cancel"),
        ] {
            assert_eq!(job(action, more).unwrap(), callee);
        }
        for (action, more, field) in [
            ("read", json!({ "port": 80 }), "port"),
            ("read", json!({ "timeout": 5 }), "timeout"),
            ("cancel", json!({ "offset": 9 }), "offset"),
            ("list", json!({}), "job"),
        ] {
            let refused = job(action, more).unwrap_err();
            assert_eq!(refused, format!("invalid_input: `action`: `{field}` is given, and this one does not read it"));
        }
    }
}

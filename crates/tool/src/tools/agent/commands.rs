//! Commands: `shell`, `job` and `python`.

use coracle_workspace::Effect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::AgentTool;
use super::inner_call::InnerCall;
use crate::failure::{Code, Failure};

/// Seconds that a call waits. Clients give up after a minute, and the command goes on as a job.
const WAIT_S: u64 = 50;

/// Run a shell command. What still runs after `timeout` goes on as a job. Example: {"command": "pytest -q"}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ShellTool {
    /// Shell text.
    command: String,
    /// Directory; else the work directory.
    workdir: Option<String>,
    env: Option<Map<String, Value>>,
    stdin: Option<String>,
    as_root: Option<bool>,
    /// Seconds.
    #[schemars(with = "Option<f64>", extend("default" = WAIT_S))]
    timeout: Option<Value>,
    /// Start it as a job at once, such as a server.
    background: Option<bool>,
    /// Name; else your machine.
    container: Option<String>,
}

impl AgentTool for ShellTool {
    const NAME: &'static str = "shell";

    fn inner_call(self) -> Result<InnerCall, Failure> {
        let mut fields = json!({
            "container": self.container, "command": self.command, "workdir": self.workdir, "env": self.env,
            "stdin": self.stdin, "as_root": self.as_root, "timeout": self.timeout,
        });
        if self.background == Some(true) {
            if !is_usual(&fields["timeout"]) {
                return Err(Failure::conflicting(&["timeout", "background"], "a job has no time limit here").hint(
                    "leave `timeout` out: `job` cancels the command; `exec_background` of `containers` has a `timeout`",
                ));
            }
            fields["timeout"] = Value::Null;
            return InnerCall::operation("exec_background", fields);
        }
        fields["on_timeout"] = "keep".into();
        if fields["timeout"].is_null() {
            fields["timeout"] = WAIT_S.into();
        }
        InnerCall::operation("exec", fields)
    }
}

/// Whether a time is not given, or is the default, which models copy from the schema.
fn is_usual(timeout: &Value) -> bool {
    timeout.is_null() || timeout.as_f64() == Some(WAIT_S as f64)
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
    job: Option<String>,
    #[schemars(extend("default" = "wait"))]
    action: Option<JobAction>,
    /// Regex: wait for or read lines that match.
    pattern: Option<String>,
    /// Wait until it accepts connections.
    #[schemars(with = "Option<u16>")]
    port: Option<Value>,
    /// Seconds to wait.
    #[schemars(with = "Option<f64>", extend("default" = WAIT_S))]
    timeout: Option<Value>,
    /// Output byte to begin at, else 0.
    offset: Option<i64>,
    /// Name; else your machine.
    container: Option<String>,
}

impl AgentTool for JobTool {
    const NAME: &'static str = "job";

    fn inner_call(self) -> Result<InnerCall, Failure> {
        let action = self.action.unwrap_or_default();
        if self.job.is_none() && action != JobAction::List {
            return Err(Failure::new(Code::MissingField, "required: `job`").detail("fields", ["job"]).hint(
                "give the job's id, which the call that started it answered; `\"action\": \"list\"` lists jobs",
            ));
        }
        self.check_fields(action)?;
        let mut fields = json!({ "container": self.container, "job_id": self.job });
        let operation = match action {
            JobAction::List => return InnerCall::operation("jobs", json!({ "container": self.container })),
            JobAction::Cancel => "exec_cancel",
            JobAction::Read => {
                (fields["pattern"], fields["offset"]) = (json!(self.pattern), json!(self.offset));
                "job_read"
            }
            JobAction::Wait => {
                let conditions = [("regex", self.pattern.is_some()), ("port", self.port.is_some())];
                let until = conditions.iter().filter(|it| it.1).map(|it| it.0).chain(["exit"]);
                fields["until"] = json!(until.collect::<Vec<_>>());
                (fields["pattern"], fields["port"]) = (json!(self.pattern), json!(self.port));
                fields["offset"] = json!(self.offset.or(self.pattern.is_some().then_some(0)));
                fields["timeout"] = self.timeout.unwrap_or_else(|| WAIT_S.into());
                "job_wait"
            }
        };
        InnerCall::operation(operation, fields)
    }
}

impl JobTool {
    /// Refuses a field that the action does not read: the caller expects something of it.
    fn check_fields(&self, action: JobAction) -> Result<(), Failure> {
        use JobAction::{Cancel, Read, Wait};

        let has_timeout = self.timeout.as_ref().is_some_and(|it| !is_usual(it));
        let fields: [(&str, bool, &[JobAction]); 5] = [
            ("job", self.job.is_some(), &[Wait, Read, Cancel]),
            ("pattern", self.pattern.is_some(), &[Wait, Read]),
            ("offset", self.offset.is_some(), &[Wait, Read]),
            ("port", self.port.is_some(), &[Wait]),
            ("timeout", has_timeout, &[Wait]),
        ];
        match fields.iter().find(|it| it.1 && !it.2.contains(&action)) {
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
    container: Option<String>,
}

impl AgentTool for PythonTool {
    const NAME: &'static str = "python";
    const EFFECT: Effect = Effect::Mutating;

    fn inner_call(self) -> Result<InnerCall, Failure> {
        let Self { code, restart, container } = self;
        let fields = json!({ "code": code, "persistent": true, "restart": restart, "container": container });
        InnerCall::tool("evaluate_python", fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{AgentTool, InnerCall, JobTool, ShellTool};

    /// The fields of the call that a tool makes, or why it makes none.
    fn fields<T: AgentTool>(arguments: Value) -> Result<Value, String> {
        let tool: T = serde_json::from_value(arguments).unwrap();
        match tool.inner_call() {
            Ok(InnerCall::Callee(callee, mut fields)) => {
                fields.insert("callee".into(), callee.name.into());
                Ok(fields.into())
            }
            Ok(InnerCall::Text(text)) => panic!("{text}"),
            Err(failure) => Err(format!("{}: {}", failure.code.word(), failure.message)),
        }
    }

    #[test]
    fn a_command_in_the_background_is_ended_by_no_time_limit() {
        let shell = |timeout: Value| {
            fields::<ShellTool>(json!({ "command": "npm run dev", "background": true, "timeout": timeout }))
        };
        for usual in [Value::Null, json!(50), json!(50.0)] {
            assert_eq!(shell(usual).unwrap(), json!({ "callee": "exec_background", "command": "npm run dev" }));
        }
        assert_eq!(shell(json!(600)).unwrap_err(), "conflicting_fields: a job has no time limit here");
        let waited = fields::<ShellTool>(json!({ "command": "true" })).unwrap();
        assert_eq!((&waited["timeout"], &waited["on_timeout"]), (&json!(50), &json!("keep")));
    }

    #[test]
    fn a_field_that_an_action_does_not_read_is_refused() {
        let job = |action: &str, more: Value| {
            let mut arguments = json!({ "job": "1f0c9a2e", "action": action });
            arguments.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            fields::<JobTool>(arguments).map(|it| it["callee"].clone())
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

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
            return InnerCall::operation("exec_background", fields);
        }
        fields["on_timeout"] = "keep".into();
        if fields["timeout"].is_null() {
            fields["timeout"] = WAIT_S.into();
        }
        InnerCall::operation("exec", fields)
    }
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

/// Follow a job: wait for its end (or for `pattern` or `port`), read its output, cancel it; or list jobs. Example: {"job": "1f0c9a2e",
/// "port": 8000}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct JobTool {
    job: Option<String>,
    #[schemars(extend("default" = "wait"))]
    action: Option<JobAction>,
    /// Regex: wait for, or read only, lines that match.
    pattern: Option<String>,
    /// Wait until it accepts connections.
    port: Option<Value>,
    /// Seconds to wait.
    #[schemars(with = "Option<f64>", extend("default" = WAIT_S))]
    timeout: Option<Value>,
    /// Byte of the output to read from.
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

/// Run Python. Variables stay for the next call; the last expression, plots and tables are shown. Example: {"code": "6 * 7"}
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

//! Executes a call, from its text to its answer. The same for all front ends.

use coracle_context::document::Render;
use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use serde_json::{Map, Value};

use super::deserialize::{self, Problem};
use super::{AnswerShape, CallResponse, Operation, OperationEntry, PreparedCall, fields, parse};

/// What a caller sent.
#[derive(Clone, Debug)]
pub enum CallInput {
    /// JSON text, not yet parsed.
    Text(Vec<u8>),
    /// An object that the transport has parsed.
    Object(Map<String, Value>),
}

/// A call with its fields parsed: only such a call is executed.
pub(crate) struct ParsedCall {
    pub(crate) entry: OperationEntry,
    pub(crate) prepared: PreparedCall,
    /// The fields, for the audit trail.
    pub(crate) args: Map<String, Value>,
}

/// Executes a call of one of these operations. The answer always has `success`.
pub async fn execute(table: &[OperationEntry], process: &Process, input: CallInput) -> CallResponse {
    let object = match input {
        CallInput::Text(text) => parse::object(&text),
        CallInput::Object(object) => parse::within_levels(&object).map(|()| object),
    };
    let object = match object {
        Ok(object) => object,
        Err(failure) => return CallResponse::of_failure(&failure, None),
    };
    let operation = object.get("operation").and_then(Value::as_str).map(str::to_owned);
    let response = match ParsedCall::parse(table, process, object) {
        Ok(call) => call.execute(process).await,
        Err(failure) => Err(failure),
    };
    match response {
        Ok(mut response) => {
            response.json.entry("success").or_insert(true.into());
            response
        }
        Err(failure) => CallResponse::of_failure(&failure.for_reader(&process.context.reader()), operation.as_deref()),
    }
}

impl ParsedCall {
    /// A call that Coracle itself makes. `args` are the fields that the audit trail records.
    pub(crate) fn new<T, S>(request: T, args: Map<String, Value>) -> Self
    where
        T: Operation<S, Response: Render + 'static>,
        S: Sync + 'static,
        Process: AsRef<S>,
    {
        Self { entry: OperationEntry::for_request::<T, S>(), prepared: super::prepared(request), args }
    }

    /// Parses a call of one of these operations. Operations that the front end does not offer are unknown.
    ///
    /// # Errors
    /// One failure with everything that is wrong with the fields.
    pub(crate) fn parse(
        table: &[OperationEntry],
        process: &Process,
        mut object: Map<String, Value>,
    ) -> Result<Self, Failure> {
        let frontend = process.context.call.frontend;
        let table: Vec<OperationEntry> =
            table.iter().filter(|entry| entry.audience.includes(frontend)).copied().collect();
        let entry = fields::operation(&table, &mut object)?;
        let (args, mut problems) = fields::own_fields(&table, &entry, object);
        match (entry.prepare)(entry.name, args.clone()) {
            Ok(prepared) if problems.is_empty() => return Ok(Self { entry, prepared, args }),
            Ok(_) => {}
            Err(typed) => {
                // `own_fields` has already reported all missing fields.
                let is_missing = |problem: &Problem| problem.field.is_empty() && !problems.is_empty();
                let found: Vec<Problem> = typed.into_iter().filter(|problem| !is_missing(problem)).collect();
                problems.extend(found);
            }
        }
        Err(deserialize::failure(&problems))
    }

    /// Executes the call. The answer has no `success` yet.
    ///
    /// # Errors
    /// The failure of the operation, not yet worded for the front end.
    pub(crate) async fn execute(self, process: &Process) -> Result<CallResponse, Failure> {
        let cx = &process.context;
        if !self.entry.diagnoses {
            cx.configured()?;
        }
        if cx.call.cancel.is_cancelled() {
            return Err(Failure::cancelled());
        }
        let process = process.clone().with_context(cx.with_own_warnings());
        let mut response = self.entry.run(self.prepared, &process, &self.args).await?;
        response.warnings = process.context.take_warnings();
        let has_fields = matches!(self.entry.shape, AnswerShape::Fields | AnswerShape::WrappedFields);
        if has_fields && !response.warnings.is_empty() {
            let warnings = serde_json::to_value(&response.warnings).map_err(Failure::internal)?;
            response.json.insert("warnings".to_owned(), warnings);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::arg_types::{Name, Script, Seconds};
    use coracle_context::context::{ConfigSource, Context, Frontend};
    use coracle_context::failure::Failure;
    use coracle_prepare::process::Process;
    use insta::assert_snapshot;
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::{CallInput, execute};
    use crate::dispatch::{Audience, Effect, Operation, OperationEntry};
    use coracle_context::warning::Warning;

    /// Runs.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Run {
        /// Which one.
        #[schemars(with = "Name")]
        container: coracle_types::Handle,
        command: Script,
        /// Seconds.
        #[serde(default)]
        #[schemars(extend("default" = 300))]
        timeout: Option<Seconds>,
        #[serde(default)]
        as_root: bool,
        #[serde(default)]
        mounts: Vec<Mount>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Mount {
        host: String,
    }

    impl Operation for Run {
        const NAME: &'static str = "run";
        const EFFECT: Effect = Effect::ReadOnly;
        type Response = Value;
        async fn run(self, _: &Context) -> Result<Value, Failure> {
            Ok(json!({ "ran": format!("{} {:?} {:?} {}", self.container, self.command.0, self.timeout, self.as_root),
                "mounts": self.mounts.iter().map(|it| it.host.clone()).collect::<Vec<_>>() }))
        }
    }

    /// Shows.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Show {
        #[serde(default)]
        memory_limit: Option<u64>,
    }

    impl Operation for Show {
        const NAME: &'static str = "show";
        const EFFECT: Effect = Effect::ReadOnly;
        type Response = Value;
        async fn run(self, _: &Context) -> Result<Value, Failure> {
            Ok(json!({ "limit": self.memory_limit }))
        }
    }

    const TABLE: &[OperationEntry] = &[OperationEntry::for_operation::<Run>(), OperationEntry::for_operation::<Show>()];

    /// The answer in a few lines: code and message, hint, and all problems.
    async fn check(call: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::new(Context::for_tests(dir.path()));
        let answer = execute(TABLE, &process, CallInput::Text(call.into())).await.json;
        if answer["success"] == true {
            return Value::Object(answer).to_string();
        }
        assert_eq!(answer["error"], answer["message"]);
        let problems = answer["details"]["problems"].as_array().cloned().unwrap_or_default();
        let word = |it: &Value, key: &str| it[key].as_str().unwrap_or("-").to_owned();
        let mut lines = vec![format!("{}: {}", word(&json!(answer), "code"), word(&json!(answer), "message"))];
        lines.push(format!("hint: {}", word(&json!(answer), "hint")));
        lines.extend(
            problems.iter().map(|it| format!("{} {}: {}", word(it, "code"), word(it, "field"), word(it, "message"))),
        );
        lines.join("\n")
    }

    #[tokio::test]
    async fn a_call_is_answered() {
        assert_snapshot!(check(r#"{"operation":"run","container":"c","command":["ls"],"timeout":null,"mounts":[{"host":"/x"}]}"#).await, @r#"{"mounts":["/x"],"ran":"c Argv([\"ls\"]) None false","success":true}"#);
    }

    #[tokio::test]
    async fn an_unknown_operation_gets_the_nearest_name() {
        assert_snapshot!(check(r#"{"operation":"teleport"}"#).await, @r"
        unknown_operation: no operation `teleport`
        hint: one of run, show
        ");
        assert_snapshot!(check(r#"{"operation":"shw"}"#).await, @r"
        unknown_operation: no operation `shw`
        hint: did you mean `show`? There are run, show
        ");
        assert_snapshot!(check(r#"{}"#).await, @r"
        missing_field: required: `operation`
        hint: add `operation`: one of run, show
        ");
        assert_snapshot!(check(r#"{"operation":7}"#).await, @r"
        invalid_input: `operation`: it is not a string
        hint: one of run, show
        - operation: it is not a string
        ");
    }

    #[tokio::test]
    async fn every_missing_field_is_named() {
        assert_snapshot!(check(r#"{"operation":"run","container":null}"#).await, @r"
        missing_field: required: `container`, `command`
        hint: `run` needs it
        missing_field container: is required
        missing_field command: is required
        ");
    }

    #[tokio::test]
    async fn every_wrong_value_is_named() {
        assert_snapshot!(check(r#"{"operation":"run","container":"c","command":7,"timeout":"soon","as_root":1}"#).await, @r#"
        invalid_input: `as_root`: `1` was given; expected `true` or `false`
        hint: correct `as_root`; `details.problems` has everything that is wrong
        invalid_input as_root: `1` was given; expected `true` or `false`
        invalid_input command: `7` was given; expected a string or a list of strings, such as `"ls -l"` or `["ls","-l"]`
        invalid_input timeout: `"soon"` was given; expected seconds as a number, or text such as `90s`, `10m`, `24h`, `7d`
        "#);
        assert_snapshot!(check(r#"{"operation":"run","container":"c","command":"ls","mounts":[{"host":"/x"},{"hots":1}]}"#).await, @r"
        unknown_field: `mounts[1]` has no field `hots`
        hint: its fields are `host`
        unknown_field mounts[1].hots: `mounts[1]` has no field `hots`
        ");
        assert_snapshot!(check(r#"{"operation":"run","container":"../../x","command":"ls"}"#).await, @r"
        invalid_name: `../../x` is not a container name: letters, digits, `_`, `.` and `-`, first a letter or digit, at most 63, and not 12 or more hex digits
        hint: use letters, digits, `_`, `.` and `-`, first a letter or digit, at most 63, and not 12 or more hex digits
        invalid_name container: `../../x` is not a container name: letters, digits, `_`, `.` and `-`, first a letter or digit, at most 63, and not 12 or more hex digits
        ");
        assert_snapshot!(check(r#"{"operation":"show","memory_limit":1.5}"#).await, @r"
        invalid_input: `memory_limit`: `1.5` was given; expected a whole number from 0, such as `1`
        hint: correct `memory_limit`; `details.problems` has everything that is wrong
        invalid_input memory_limit: `1.5` was given; expected a whole number from 0, such as `1`
        ");
        assert_snapshot!(check(r#"{"operation":"run","container":"c","command":"l\u0000s"}"#).await, @r"
        invalid_input: `command`: has a NUL byte
        hint: correct `command`; `details.problems` has everything that is wrong
        invalid_input command: has a NUL byte
        ");
    }

    #[tokio::test]
    async fn fields_of_other_operations_are_ignored_when_empty_or_default() {
        assert_snapshot!(check(r#"{"operation":"show","timeout":300,"container":null,"as_root":false,"mounts":[]}"#).await, @r#"{"limit":null,"success":true}"#);
        assert_snapshot!(check(r#"{"operation":"show","as_root":true}"#).await, @r"
        unknown_field: `show` has no field `as_root`
        hint: leave it out; it belongs to `run`
        unknown_field as_root: `show` has no field `as_root`
        ");
    }

    #[tokio::test]
    async fn unknown_fields_get_the_nearest_name() {
        assert_snapshot!(check(r#"{"operation":"show","memry_limit":1}"#).await, @r"
        unknown_field: `show` has no field `memry_limit`
        hint: did you mean `memory_limit`?
        unknown_field memry_limit: `show` has no field `memry_limit`
        ");
        assert_snapshot!(check(r#"{"operation":"show","zzz":1,"timeout":5}"#).await, @r"
        unknown_field: `show` has no field `timeout`
        hint: leave it out; it belongs to `run`
        unknown_field timeout: `show` has no field `timeout`
        unknown_field zzz: `show` has no field `zzz`
        ");
    }

    /// Acts.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Act {}

    impl Operation for Act {
        const NAME: &'static str = "act";
        const EFFECT: Effect = Effect::Mutating;
        type Response = Value;
        async fn run(self, cx: &Context) -> Result<Value, Failure> {
            let trail = cx.state()?.audit().read_dir().unwrap().count();
            Ok(json!({ "intent_was_written": trail > 0 }))
        }
    }

    async fn act(cx: &Context) -> Value {
        let text = br#"{"operation":"act"}"#.to_vec();
        execute(&[OperationEntry::for_operation::<Act>()], &Process::new(cx.clone()), CallInput::Text(text))
            .await
            .json
            .into()
    }

    #[tokio::test]
    async fn agents_cannot_call_operations_of_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(dir.path());
        let text = br#"{"operation":"saved list"}"#.to_vec();
        for (frontend, code) in
            [(Frontend::Call, "unknown_operation"), (Frontend::Mcp, "unknown_operation"), (Frontend::Cli, "")]
        {
            cx.call.frontend = frontend;
            let process = Process::new(cx.clone());
            let listed = execute(crate::admin::ALL, &process, CallInput::Text(text.clone())).await.json;
            assert_eq!(listed.get("code").and_then(Value::as_str).unwrap_or_default(), code, "{frontend:?}");
        }
        assert!(crate::operations::ALL.iter().all(|it| it.audience != Audience::Person));
        assert!(crate::admin::ALL.iter().all(|it| it.audience == Audience::Person));
    }

    #[tokio::test]
    async fn the_intent_is_written_before_the_operation_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(act(&Context::for_tests(dir.path())).await["intent_was_written"], true);
    }

    #[tokio::test]
    async fn a_cancelled_call_does_not_start() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        cx.call.cancel.cancel();
        assert_eq!(act(&cx).await["code"], "cancelled");
        assert_eq!(cx.state().unwrap().audit().read_dir().unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_bad_configuration_stops_all_but_diagnostic_operations() {
        let dir = tempfile::tempdir().unwrap();
        let fault = Failure::config("engin", Some(1), "unknown");
        let mut cx = Context::for_tests(dir.path());
        cx.settings = ConfigSource { fault: Some(fault), ..(*cx.settings).clone() }.into();
        assert_eq!(act(&cx).await["code"], "config_invalid");
        let text = br#"{"operation":"preflight"}"#.to_vec();
        let checked = execute(crate::operations::ALL, &Process::new(cx), CallInput::Text(text)).await;
        assert!(checked.is_success());
    }

    /// Warns.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Warn {
        about: Option<String>,
    }

    impl Operation for Warn {
        const NAME: &'static str = "warn";
        const EFFECT: Effect = Effect::ReadOnly;
        type Response = Value;
        async fn run(self, cx: &Context) -> Result<Value, Failure> {
            cx.warn(self.about.map(|about| Warning::new("odd", about)));
            Ok(json!({}))
        }
    }

    #[tokio::test]
    async fn an_answer_has_only_the_warnings_of_its_call() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::new(Context::for_tests(dir.path()));
        let warn = async |call: &str| {
            let table = [OperationEntry::for_operation::<Warn>()];
            Value::from(execute(&table, &process, CallInput::Text(call.into())).await.json)
        };
        let warned = warn(r#"{"operation":"warn","about":"the clock"}"#).await;
        assert_eq!(warned["warnings"], json!([{ "code": "odd", "message": "the clock" }]));
        assert_eq!(warn(r#"{"operation":"warn"}"#).await, json!({ "success": true }));
    }
}

//! The table of the tools for a model.

mod output;
mod output_cache;
mod tool_output;

use std::pin::Pin;
use std::time::Duration;

use coracle_client::Link;
use coracle_sandbox::{Code, Failure};
use coracle_types::{ByteSize, ContainerPath};
use coracle_workspace::{
    EditFile, EnvKeys, Glob, Grep, Ls, Mode, PathCharset, PathRoot, PathRules, ReadFile, Response, Rm, RunSettings,
    SessionHandle, SessionSource, Shell, Tool, ToolSettings, Workspace, WriteFile, schema, with_notes,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use self::output::ShellOutput;
use self::output_cache::OutputCache;
pub(crate) use self::tool_output::ToolOutput;
use crate::Worker;
use crate::llm::ModelCall;

type Run = fn(Map<String, Value>, Workspace) -> Pin<Box<dyn Future<Output = ToolOutput> + Send>>;

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    schema: fn() -> Value,
    run: Run,
}

const fn row<T: Tool>() -> Row {
    Row {
        name: T::NAME,
        schema: schema::tidied::<T>,
        run: |arguments, workspace| {
            Box::pin(async move {
                match read::<T>(arguments) {
                    Ok(tool) => tool_output::<T>(&tool.run(&workspace).await),
                    Err(wrong) => (wrong, true),
                }
            })
        },
    }
}

const ROWS: [Row; 8] = [
    row::<Ls>(),
    row::<ReadFile>(),
    row::<WriteFile>(),
    row::<EditFile>(),
    row::<Glob>(),
    row::<Grep>(),
    row::<Rm>(),
    row::<Shell>(),
];

/// How long a cancelled tool is waited for.
const LAST: Duration = Duration::from_secs(4);

/// Directories that are excluded from the detection of changes.
const EXCLUDED: [&str; 6] = [".git", "node_modules", "target", ".venv", "__pycache__", ".cache"];

/// The memory limit files of the two cgroup versions.
const MEMORY_LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// The tools of one run.
#[derive(Debug)]
pub(crate) struct Tools {
    /// Names of the available tools.
    given: Vec<&'static str>,
    workspace: Workspace,
    link: Link,
    cwd: ContainerPath,
    cache: OutputCache,
}

impl Tools {
    /// The tools for a directory. `named` restricts them; `None` selects all.
    ///
    /// # Errors
    /// `invalid_request`: the name of an unknown tool.
    pub(crate) fn new(worker: &Worker, cwd: &ContainerPath, named: Option<&[String]>) -> Result<Self, Failure> {
        let all: Vec<&'static str> = ROWS.iter().map(|it| it.name).chain([ShellOutput::NAME]).collect();
        if let Some(unknown) = named.into_iter().flatten().find(|it| !all.contains(&it.as_str())) {
            let message = format!(
                "The request is invalid: unknown tool `{}`; the tools are {}.",
                unknown.escape_debug(),
                all.join(", ")
            );
            return Err(Failure::new(Code::InvalidRequest, message));
        }
        let given =
            all.into_iter().filter(|it| named.is_none_or(|named| named.iter().any(|name| name == it))).collect();
        let link = &worker.link;
        let session = SessionHandle::own(link.clone(), worker.settings.agent, cwd.clone(), Some(memory_limit()));
        let workspace = Workspace::new(SessionSource::Own(Box::new(session)), settings());
        Ok(Self { given, workspace, link: link.clone(), cwd: cwd.clone(), cache: OutputCache::default() })
    }

    /// The definitions of the tools for a model.
    pub(crate) fn definitions(&self) -> Vec<Value> {
        let rows = ROWS.iter().map(|it| (it.name, (it.schema)()));
        let all = rows.chain([(ShellOutput::NAME, schema::tidied::<ShellOutput>())]);
        all.filter(|it| self.given.contains(&it.0)).map(|(name, schema)| function(name, &schema)).collect()
    }

    /// Runs a tool until it ends or the run is stopped. The output is short enough for a conversation; the rest is cached.
    pub(crate) async fn run(
        &mut self,
        call: &ModelCall,
        arguments: Map<String, Value>,
        stop: &CancellationToken,
    ) -> ToolOutput {
        if !self.given.contains(&call.name.as_str()) {
            return (
                format!("There is no tool `{}`. There are: {}.", call.name.escape_debug(), self.given.join(", ")),
                true,
            );
        }
        let arguments = relative(arguments, &self.cwd);
        if call.name == ShellOutput::NAME {
            return match read::<ShellOutput>(arguments) {
                Ok(request) => request.run(&self.cache, &self.link).await,
                Err(wrong) => (wrong, true),
            };
        }
        let Some(row) = ROWS.iter().find(|it| it.name == call.name) else { return (String::new(), true) };
        let workspace = self.workspace.for_call(stop.clone(), None);
        let ended_late = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST).await;
        };
        let (text, is_error) = tokio::select! {
            output = (row.run)(arguments, workspace) => output,
            () = ended_late => (format!("`{}` was stopped.", call.name), true),
        };
        (self.cache.shortened(text), is_error)
    }
}

/// The memory limit of all processes of the container together.
fn memory_limit() -> ByteSize {
    let limits = MEMORY_LIMITS.iter().filter_map(|it| std::fs::read_to_string(it).ok()?.trim().parse().ok());
    ByteSize(limits.min().unwrap_or(0))
}

fn settings() -> ToolSettings {
    ToolSettings {
        paths: PathRules { charset: PathCharset::Utf8, root: PathRoot::Workspace },
        env_keys: EnvKeys::Preserve,
        read_before_write: false,
        scan_exclude: EXCLUDED.map(str::to_owned).to_vec(),
        max_bytes: None,
        has_jobs: false,
        // A worker has no tool that runs snippets.
        run: RunSettings {
            mode: Mode::Unavailable,
            max_timeout: Duration::ZERO,
            memory: ByteSize(0),
            discard_at_timeout: false,
            has_network: false,
            is_named: false,
        },
    }
}

/// A function of the model's API.
pub(crate) fn function(name: &str, schema: &Value) -> Value {
    let parameters = json!({
        "type": "object",
        "properties": schema.get("properties").cloned().unwrap_or_else(|| json!({})),
        "required": schema.get("required").cloned().unwrap_or_else(|| json!([])),
        "additionalProperties": false,
    });
    let description = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
    json!({ "type": "function", "function": { "name": name, "description": description, "parameters": parameters } })
}

/// Parses a tool's arguments; `null` is an absent argument.
fn read<T: DeserializeOwned + JsonSchema>(mut arguments: Map<String, Value>) -> Result<T, String> {
    arguments.retain(|_, it| !it.is_null());
    serde_json::from_value(Value::Object(arguments)).map_err(|err| format!("The arguments are wrong: {err}."))
}

/// Makes absolute paths in the arguments relative, since models often use absolute paths.
fn relative(mut arguments: Map<String, Value>, cwd: &ContainerPath) -> Map<String, Value> {
    for name in ["path", "file_path", "cwd"] {
        if let Some(Value::String(path)) = arguments.get_mut(name)
            && let Some(rest) = path.strip_prefix(cwd.as_str()).filter(|it| it.is_empty() || it.starts_with('/'))
        {
            *path = format!("/{}", rest.trim_start_matches('/'));
        }
    }
    arguments
}

fn tool_output<T: Tool>(answer: &Response<T::Value>) -> ToolOutput {
    let rendered = T::render(answer);
    let text = if rendered.is_empty() { answer.message.clone() } else { format!("{}\n\n{rendered}", answer.message) };
    (with_notes(&text, &answer.warnings), !answer.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_flat_and_describe_each_field() {
        for (name, schema) in
            ROWS.iter().map(|it| (it.name, (it.schema)())).chain([(ShellOutput::NAME, schema::tidied::<ShellOutput>())])
        {
            let function = function(name, &schema);
            let parameters = &function["function"]["parameters"];
            assert!(!function["function"]["description"].as_str().unwrap().is_empty(), "{name}");
            for (field, schema) in parameters["properties"].as_object().unwrap() {
                assert!(schema["description"].is_string() && schema.get("type").is_some(), "{name}.{field}: {schema}");
            }
            for word in ["$ref", "oneOf", "anyOf", "allOf"] {
                assert!(!parameters.to_string().contains(word), "{name}: {word}");
            }
        }
    }

    #[test]
    fn an_absolute_path_is_made_relative() {
        let cwd = ContainerPath::parse("/workspace/worktrees/a").unwrap();
        for (given, taken) in [
            ("/workspace/worktrees/a/src/x", "/src/x"),
            ("/workspace/worktrees/a", "/"),
            ("/workspace/worktrees/ab", "/workspace/worktrees/ab"),
            ("src/x", "src/x"),
        ] {
            let arguments = json!({ "path": given, "content": given }).as_object().unwrap().clone();
            let arguments = relative(arguments, &cwd);
            assert_eq!((&arguments["path"], &arguments["content"]), (&json!(taken), &json!(given)));
        }
    }
}

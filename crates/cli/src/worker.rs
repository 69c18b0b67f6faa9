//! `coracle worker run`: runs the agent of a workflow, and prints its steps.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::ArgMatches;
use coracle::Effect;
use coracle_context::document::sanitize;
use coracle_context::{Context, Failure, Host, Options, audit};
use coracle_prepare::sandbox::{self, Task};
use coracle_types::{ProfileName, WorkflowId};
use serde_json::{Map, Value, json};

use super::reporter::{Reporter, with_events};
use super::{exit, startup};

/// Maximum size of a prompt in bytes.
const MAX_PROMPT: u64 = 16 << 20;

/// Maximum bytes of a tool's input or output for users.
const MAX_SHOWN: usize = 400;

/// Maximum lines of a tool's output for users.
const SHOWN_LINES: usize = 6;

/// Runs the agent. Events go to standard output, as text or with `--json` as lines of JSON; the last one is the result.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let Some((_, matches)) = matches.subcommand() else { return ExitCode::from(exit::NOT_UNDERSTOOD) };
    match Box::pin(work(matches, host, options)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => exit::failed(&failure),
    }
}

async fn work(matches: &ArgMatches, host: Host, options: &Options) -> Result<(), Failure> {
    let process = startup::open_configured(host, options)?;
    let cx = &process.context;
    let (id, profile) = workflow(matches)?;
    let sandbox = process.sandboxes().with_workflow(profile, &id).await?;
    let task = requested(cx, matches, sandbox.profile.clone())?;
    let model = sandbox::model(cx, &task.profile, task.model.clone())?;
    sandbox::ensure_key(cx, &task.profile).await?;
    let args = json!({ "workflow": id.as_str(), "profile": task.profile.as_str(), "model": model });
    let intent = audit::intent(cx, "worker_run", Effect::Mutating, args.as_object().unwrap_or(&Map::new())).await?;
    let json = matches.get_flag("json");
    let screen = Mutex::new(Reporter::new(&cx.host));
    let reporter = || screen.lock().unwrap_or_else(PoisonError::into_inner);
    let hear = |event: &Value| {
        let mut screen = reporter();
        if let Some(text) = if json { Some(event.to_string()) } else { readable(event) } {
            screen.print(&text);
        }
        if let Some(text) = waited_for(event, &model, screen.is_on_terminal()) {
            screen.message(&text);
        }
    };
    let work = async |cx: &Context| Box::pin(sandbox::work(cx, &sandbox, &id, task, hear)).await;
    let done = with_events(cx, work, |event| reporter().show_event(&event)).await;
    reporter().clear();
    intent.finish_program(done.as_ref().map(|()| None)).await;
    done
}

/// The progress after an event. In a pipe, the events themselves show progress after the model's first answer.
fn waited_for(event: &Value, model: &str, terminal: bool) -> Option<String> {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    match text("type") {
        "started" => Some(format!("waiting for the model {model}")),
        "tool_call" if terminal => Some(format!("running {}", text("name"))),
        _ if terminal => Some(format!("waiting for the model {model}")),
        _ => None,
    }
}

/// An event as text. The error that ends the command reports a failed run.
fn readable(event: &Value) -> Option<String> {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    let shown = match text("type") {
        "started" => match text("recreated") {
            "" => return None,
            why => format!("a new container: {why}"),
        },
        "thinking" => text("text").trim().to_owned(),
        "tool_call" => format!("> {} {}", text("name"), shortened(&input_shown(&event["input"]))),
        "tool_result" => {
            let mark = if event["is_error"] == true { "  ! " } else { "    " };
            indented(&shortened(text("output").trim()), mark)
        }
        "warning" => format!("warning: {}", text("message")),
        "result" if event["is_error"] == true => return None,
        "result" => format!("\n{}", text("content").trim()),
        _ => return None,
    };
    Some(sanitize(&shown)).filter(|shown| !shown.is_empty())
}

/// The fields of a tool's input; a single text unchanged.
fn input_shown(input: &Value) -> String {
    let field = |value: &Value| value.as_str().map_or_else(|| value.to_string(), |text| text.replace('\n', " "));
    match input.as_object() {
        Some(fields) if fields.len() == 1 => fields.values().map(field).collect(),
        Some(fields) => {
            fields.iter().map(|(name, value)| format!("{name}={}", field(value))).collect::<Vec<_>>().join(" ")
        }
        None => input.to_string(),
    }
}

fn shortened(text: &str) -> String {
    let mut end = text.len().min(MAX_SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let lines: Vec<&str> = text[..end].lines().collect();
    let is_cut = end < text.len() || lines.len() > SHOWN_LINES;
    let shown = lines[..lines.len().min(SHOWN_LINES)].join("\n");
    if is_cut { format!("{shown} …") } else { shown }
}

fn indented(text: &str, mark: &str) -> String {
    text.lines().map(|line| format!("{mark}{line}")).collect::<Vec<_>>().join("\n")
}

fn workflow(matches: &ArgMatches) -> Result<(WorkflowId, Option<ProfileName>), Failure> {
    let word = |name: &str| matches.get_one::<String>(name).cloned();
    let profile = word("profile").map(ProfileName::parse).transpose()?;
    Ok((WorkflowId::parse(word("worktree").unwrap_or_default())?, profile))
}

fn requested(cx: &Context, matches: &ArgMatches, profile: ProfileName) -> Result<Task, Failure> {
    let word = |name: &str| matches.get_one::<String>(name).cloned();
    let mut prompt = word("prompt").unwrap_or_default();
    if prompt == "-" {
        prompt.clear();
        let read = std::io::stdin().lock().take(MAX_PROMPT).read_to_string(&mut prompt);
        read.map_err(|err| Failure::invalid("prompt", format!("cannot be read: {err}")))?;
    }
    let schema = matches.get_one::<PathBuf>("schema").map(|it| schema(cx, it)).transpose()?;
    Ok(Task { profile, prompt, model: word("model"), instructions: word("instructions"), schema })
}

fn schema(cx: &Context, file: &Path) -> Result<Value, Failure> {
    let bad = |why: String| Failure::invalid("schema", why);
    let text = std::fs::read(cx.host.path(file)).map_err(|err| bad(format!("cannot be read: {err}")))?;
    serde_json::from_slice(&text).map_err(|err| bad(format!("is no JSON: {err}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_lines_that_a_person_reads() {
        let events = [
            json!({ "type": "started", "run_id": "0a", "recreated": null }),
            json!({ "type": "thinking", "text": "The test fails.\n" }),
            json!({ "type": "tool_call", "name": "read_file", "input": { "file_path": "/workspace/a" } }),
            json!({ "type": "tool_result", "output": "1\n2\n3\n4\n5\n6\n7\n", "is_error": false }),
            json!({ "type": "tool_call", "name": "edit_file", "input": { "old": "a\nb", "all": true } }),
            json!({ "type": "tool_result", "output": "not there \u{1b}[2J", "is_error": true }),
            json!({ "type": "warning", "code": "uncommitted", "message": "1 file not committed" }),
            json!({ "type": "result", "content": "It adds now.", "is_error": false }),
            json!({ "type": "result", "content": "the error has it", "is_error": true }),
        ];
        let shown: Vec<String> = events.iter().filter_map(readable).collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        The test fails.
        > read_file /workspace/a
            1
            2
            3
            4
            5
            6 …
        > edit_file all=true old=a b
          ! not there �[2J
        warning: 1 file not committed

        It adds now.
        ");
    }
}

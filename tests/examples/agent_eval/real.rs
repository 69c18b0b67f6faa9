//! A real model for the same tasks, over the Messages API of Anthropic or a compatible one.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::client::Session;
use crate::model::Stuck;

/// Maximum number of turns in one task.
const MOST_TURNS: usize = 40;

/// Tokens of one turn.
const MOST_TOKENS: u32 = 4096;

const SYSTEM: &str = "You work on a Linux machine by your tools. Do the task, then say in one sentence what you did.";

pub(crate) struct RealModel {
    name: String,
    base_url: String,
    /// The header with the key. It is not in the arguments of a process, which others can see.
    header: NamedTempFile,
}

impl RealModel {
    /// The model that the environment names, if it does.
    pub(crate) fn of_environment() -> Option<Self> {
        let [key, name] = ["ANTHROPIC_API_KEY", "CORACLE_EVAL_MODEL"].map(|it| std::env::var(it).ok());
        let (key, name) = (key?, name?);
        let base_url = std::env::var("ANTHROPIC_BASE_URL").unwrap_or_else(|_| "https://api.anthropic.com".to_owned());
        let mut header = NamedTempFile::new().unwrap();
        writeln!(header, "x-api-key: {key}").unwrap();
        Some(Self { name, base_url, header })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Lets it call tools until it is done. Returns its last text.
    ///
    /// # Errors
    /// If the API refuses a request, or after too many turns.
    pub(crate) fn play(&self, session: &mut Session, goal: &str) -> Result<String, Stuck> {
        let tools = tools(&session.tools());
        let mut messages = vec![json!({ "role": "user", "content": goal })];
        for _ in 0..MOST_TURNS {
            let content = self.ask(&messages, &tools)?;
            let results = results(session, &content);
            messages.push(json!({ "role": "assistant", "content": content }));
            if results.is_empty() {
                return Ok(words(&messages[messages.len() - 1]["content"]));
            }
            messages.push(json!({ "role": "user", "content": results }));
        }
        Err("it goes in circles".to_owned())
    }

    /// Its next turn.
    fn ask(&self, messages: &[Value], tools: &Value) -> Result<Vec<Value>, Stuck> {
        let request = json!({
            "model": self.name, "max_tokens": MOST_TOKENS, "system": SYSTEM, "messages": messages, "tools": tools,
        });
        let mut curl = Command::new("curl")
            .args(["--silent", "--show-error", "--retry", "5", "--max-time", "300", "--data-binary", "@-"])
            .args(["--header", "content-type: application/json", "--header", "anthropic-version: 2023-06-01"])
            .arg("--header")
            .arg(format!("@{}", self.header.path().display()))
            .arg(format!("{}/v1/messages", self.base_url))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        curl.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
        let output = curl.wait_with_output().unwrap();
        let reply: Value = serde_json::from_slice(&output.stdout).map_err(|err| format!("the model: {err}"))?;
        reply["content"].as_array().cloned().ok_or_else(|| format!("the model: {}", reply["error"]))
    }
}

fn words(content: &Value) -> String {
    let texts = content.as_array().into_iter().flatten().filter_map(|it| it["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// The tools as that API has them.
fn tools(listed: &Value) -> Value {
    let tool =
        |it: &Value| json!({ "name": it["name"], "description": it["description"], "input_schema": it["inputSchema"] });
    listed.as_array().into_iter().flatten().map(tool).collect()
}

/// Executes the calls of a turn.
fn results(session: &mut Session, content: &[Value]) -> Vec<Value> {
    let calls = content.iter().filter(|it| it["type"] == "tool_use");
    calls
        .map(|it| {
            let answer = session.call(it["name"].as_str().unwrap_or_default(), &it["input"]);
            json!({
                "type": "tool_result", "tool_use_id": it["id"], "content": answer.text, "is_error": answer.is_error,
            })
        })
        .collect()
}

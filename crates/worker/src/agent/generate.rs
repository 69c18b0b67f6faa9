//! Runs that generate one text, or one value of a schema.

use coracle_sandbox::schema::Schema;
use coracle_sandbox::{Code, Failure, Result};
use serde_json::{Value, json};

use super::context::RunContext;
use super::conversation::Conversation;
use super::submit::{SUBMIT, arguments, submit, unwrapped};
use crate::llm::{LlmError, Reply};

/// Number of attempts to correct an invalid result.
const MAX_REPAIRS: usize = 2;

/// How the model returns a value of the schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputStrategy {
    /// By the provider's structured output.
    Format,
    /// By a tool that the model must call.
    Tool,
}

/// Generates the final text.
pub(crate) async fn generate(cx: RunContext<'_>) -> Result<String> {
    let system = cx.request.instructions.as_deref().unwrap_or_default();
    let mut talk = Conversation::new(system, cx.request.prompt.as_deref().unwrap_or_default());
    let Some(schema) = &cx.schema else {
        return plain(cx, talk).await;
    };
    let (mut strategy, mut repairs) = (OutputStrategy::Format, 0);
    loop {
        let body = body(&cx.reporter.model, &talk, schema, strategy);
        let reply = match cx.llm.complete(&body, cx.meter, cx.stop).await {
            Ok(reply) => reply,
            Err(LlmError::Unfit(_)) if strategy == OutputStrategy::Format => {
                strategy = OutputStrategy::Tool;
                continue;
            }
            Err(refusal) => return Err(refusal.into()),
        };
        let (text, read) = read(&reply, schema, strategy);
        let faults = match read {
            Ok(value) => return Ok(value.to_string()),
            Err(faults) => faults.join("; "),
        };
        if repairs == MAX_REPAIRS {
            let message = format!("The result does not fit its schema: {faults}.");
            return Err(Failure::new(Code::SchemaViolation, message).detail("text", text));
        }
        repairs += 1;
        talk.push(reply.message());
        for call in &reply.calls {
            talk.add_tool_result(call, "It does not fit.");
        }
        talk.user(&format!("That does not fit the schema: {faults}. Give the corrected JSON only."));
    }
}

async fn plain(cx: RunContext<'_>, mut talk: Conversation) -> Result<String> {
    for _ in 0..2 {
        let body = json!({ "model": cx.reporter.model, "messages": talk.messages() });
        let reply = cx.llm.complete(&body, cx.meter, cx.stop).await?;
        if !reply.text.trim().is_empty() {
            return Ok(reply.text);
        }
        talk.push(reply.message());
        talk.user("Your answer was empty. Answer again.");
    }
    Err(Failure::new(Code::LlmFailed, "The model gave an empty answer twice."))
}

fn body(model: &str, talk: &Conversation, schema: &Schema, strategy: OutputStrategy) -> Value {
    let mut body = json!({ "model": model, "messages": talk.messages() });
    match strategy {
        OutputStrategy::Format => {
            let shape = json!({ "name": "result", "strict": true, "schema": schema.value() });
            body["response_format"] = json!({ "type": "json_schema", "json_schema": shape });
        }
        OutputStrategy::Tool => {
            body["tools"] = json!([submit(schema)]);
            body["tool_choice"] = json!({ "type": "function", "function": { "name": SUBMIT } });
        }
    }
    body
}

/// The reply as text, and as a valid value.
fn read(reply: &Reply, schema: &Schema, strategy: OutputStrategy) -> (String, Result<Value, Vec<String>>) {
    let call = reply.calls.iter().find(|it| strategy == OutputStrategy::Tool && it.name == SUBMIT);
    match call {
        None => (reply.text.clone(), schema.read(reply.text.trim())),
        Some(call) => {
            let no_object = || vec!["the arguments are not a JSON object".to_owned()];
            let value = arguments(&call.arguments).map(|it| unwrapped(schema, it)).ok_or_else(no_object);
            (call.arguments.clone(), value.and_then(|it| schema.check(&it).map(|()| it)))
        }
    }
}

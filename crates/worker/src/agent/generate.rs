//! Runs that generate one text, or one value of a schema.

use coracle_sandbox::schema::Schema;
use coracle_sandbox::{Code, Failure, Result};
use serde_json::{Value, json};

use super::context::RunContext;
use super::conversation::Conversation;
use super::submit::{SUBMIT, arguments, submit, unwrapped};
use crate::llm::{LlmError, Reply};

/// Times that a model may mend what does not fit.
const MAX_REPAIRS: usize = 2;

/// How the model is asked for a value of the schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputStrategy {
    /// By the provider's structured output.
    Format,
    /// By a tool that the model has to call.
    Tool,
}

/// Generates the final text.
pub(crate) async fn generate(cx: RunContext<'_>) -> Result<String> {
    let system = cx.request.instructions.as_deref().unwrap_or_default();
    let mut talk = Conversation::new(system, cx.request.prompt.as_deref().unwrap_or_default());
    let Some(schema) = &cx.schema else {
        return plain(cx, talk).await;
    };
    let (mut way, mut repairs) = (OutputStrategy::Format, 0);
    loop {
        let question = question(&cx.teller.model, &talk, schema, way);
        let reply = match cx.llm.complete(&question, cx.meter, cx.stop).await {
            Ok(reply) => reply,
            Err(LlmError::Unfit(_)) if way == OutputStrategy::Format => {
                way = OutputStrategy::Tool;
                continue;
            }
            Err(refusal) => return Err(refusal.into()),
        };
        let (text, read) = read(&reply, schema, way);
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
            talk.answer(call, "It does not fit.");
        }
        talk.user(&format!("That does not fit the schema: {faults}. Give the corrected JSON only."));
    }
}

async fn plain(cx: RunContext<'_>, mut talk: Conversation) -> Result<String> {
    for _ in 0..2 {
        let question = json!({ "model": cx.teller.model, "messages": talk.messages() });
        let reply = cx.llm.complete(&question, cx.meter, cx.stop).await?;
        if !reply.text.trim().is_empty() {
            return Ok(reply.text);
        }
        talk.push(reply.message());
        talk.user("Your answer was empty. Answer again.");
    }
    Err(Failure::new(Code::LlmFailed, "The model answered with nothing, twice."))
}

fn question(model: &str, talk: &Conversation, schema: &Schema, way: OutputStrategy) -> Value {
    let mut question = json!({ "model": model, "messages": talk.messages() });
    match way {
        OutputStrategy::Format => {
            let shape = json!({ "name": "result", "strict": true, "schema": schema.value() });
            question["response_format"] = json!({ "type": "json_schema", "json_schema": shape });
        }
        OutputStrategy::Tool => {
            question["tools"] = json!([submit(schema)]);
            question["tool_choice"] = json!({ "type": "function", "function": { "name": SUBMIT } });
        }
    }
    question
}

/// The reply as text, and as a value that fits.
fn read(reply: &Reply, schema: &Schema, way: OutputStrategy) -> (String, Result<Value, Vec<String>>) {
    let call = reply.calls.iter().find(|it| way == OutputStrategy::Tool && it.name == SUBMIT);
    match call {
        None => (reply.text.clone(), schema.read(reply.text.trim())),
        Some(call) => {
            let no_object = || vec!["the arguments are no JSON object".to_owned()];
            let value = arguments(&call.arguments).map(|it| unwrapped(schema, it)).ok_or_else(no_object);
            (call.arguments.clone(), value.and_then(|it| schema.check(&it).map(|()| it)))
        }
    }
}

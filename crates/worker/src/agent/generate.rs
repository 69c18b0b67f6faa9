//! One text, or one value of a shape.

use coracle_sandbox::schema::Schema;
use coracle_sandbox::{Code, Failure, Result};
use serde_json::{Value, json};

use super::context::Cx;
use super::submit::{SUBMIT, arguments, submit, unwrapped};
use super::talk::Talk;
use crate::llm::{Refusal, Reply};

/// Times that a model may mend what does not fit.
const REPAIRS: usize = 2;

/// How the shape is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the provider's own means.
    Format,
    /// By a tool that has to be called.
    Tool,
}

/// Generates the final text.
pub(crate) async fn generate(cx: Cx<'_>) -> Result<String> {
    let system = cx.request.instructions.as_deref().unwrap_or_default();
    let mut talk = Talk::new(system, cx.request.prompt.as_deref().unwrap_or_default());
    let Some(schema) = &cx.schema else {
        return plain(&cx.llm, (&mut talk, &cx.teller.model), cx.meter, cx.stop).await;
    };
    let (mut way, mut repairs) = (Way::Format, 0);
    loop {
        let question = question(&cx.teller.model, &talk, schema, way);
        let reply = match cx.llm.ask(&question, cx.meter, cx.stop).await {
            Ok(reply) => reply,
            Err(Refusal::Unfit(_)) if way == Way::Format => {
                way = Way::Tool;
                continue;
            }
            Err(refusal) => return Err(refusal.into()),
        };
        let (text, read) = read(&reply, schema, way);
        let faults = match read {
            Ok(value) => return Ok(value.to_string()),
            Err(faults) => faults.join("; "),
        };
        if repairs == REPAIRS {
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

async fn plain(
    llm: &crate::llm::Llm<'_>,
    (talk, model): (&mut Talk, &str),
    meter: &mut crate::llm::Meter,
    stop: &crate::stop::Stop,
) -> Result<String> {
    for _ in 0..2 {
        let question = json!({ "model": model, "messages": talk.messages() });
        let reply = llm.ask(&question, meter, stop).await?;
        if !reply.text.trim().is_empty() {
            return Ok(reply.text);
        }
        talk.push(reply.message());
        talk.user("Your answer was empty. Answer again.");
    }
    Err(Failure::new(Code::LlmFailed, "The model answered with nothing, twice."))
}

fn question(model: &str, talk: &Talk, schema: &Schema, way: Way) -> Value {
    let mut question = json!({ "model": model, "messages": talk.messages() });
    match way {
        Way::Format => {
            let shape = json!({ "name": "result", "strict": true, "schema": schema.value() });
            question["response_format"] = json!({ "type": "json_schema", "json_schema": shape });
        }
        Way::Tool => {
            question["tools"] = json!([submit(schema)]);
            question["tool_choice"] = json!({ "type": "function", "function": { "name": SUBMIT } });
        }
    }
    question
}

/// What the model gave as text, and as a value that fits.
fn read(reply: &Reply, schema: &Schema, way: Way) -> (String, Result<Value, Vec<String>>) {
    let call = reply.calls.iter().find(|it| way == Way::Tool && it.name == SUBMIT);
    match call {
        None => (reply.text.clone(), schema.read(reply.text.trim())),
        Some(call) => {
            let no_object = || vec!["the arguments are no JSON object".to_owned()];
            let value = arguments(&call.arguments).map(|it| unwrapped(schema, it)).ok_or_else(no_object);
            (call.arguments.clone(), value.and_then(|it| schema.check(&it).map(|()| it)))
        }
    }
}

//! A model's reply, assembled from the parts of a stream.

use coracle_sandbox::protocol::Usage;
use serde_json::{Value, json};

/// A tool call of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON text, as the model wrote it.
    pub(crate) arguments: String,
}

/// A complete reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) calls: Vec<ModelCall>,
    /// The finish reason: `stop`, `tool_calls`, `length`, …
    pub(crate) finish: Option<String>,
    pub(crate) usage: Option<Value>,
}

/// Maximum number of calls of one reply.
const MAX_CALLS: usize = 128;

impl Reply {
    /// Adds a part of a stream, or a whole reply.
    ///
    /// # Errors
    /// An error of the provider within the stream.
    pub(crate) fn take(&mut self, part: &Value) -> Result<(), String> {
        if let Some(error) = part.get("error").filter(|it| !it.is_null()) {
            return Err(error.get("message").and_then(Value::as_str).unwrap_or("the provider failed").to_owned());
        }
        if let Some(usage) = part.get("usage").filter(|it| it.is_object()) {
            self.usage = Some(usage.clone());
        }
        let choice = &part["choices"][0];
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
        let delta = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        self.text.push_str(delta["content"].as_str().unwrap_or_default());
        for (at, call) in delta["tool_calls"].as_array().into_iter().flatten().enumerate() {
            self.take_call(at, call);
        }
        Ok(())
    }

    fn take_call(&mut self, at: usize, part: &Value) {
        let index = part["index"].as_u64().map_or(at, |it| usize::try_from(it).unwrap_or(usize::MAX));
        if index >= MAX_CALLS {
            return;
        }
        if self.calls.len() <= index {
            self.calls.resize_with(index + 1, ModelCall::default);
        }
        let call = &mut self.calls[index];
        let function = &part["function"];
        for (into, from) in [
            (&mut call.id, &part["id"]),
            (&mut call.name, &function["name"]),
            (&mut call.arguments, &function["arguments"]),
        ] {
            into.push_str(from.as_str().unwrap_or_default());
        }
    }

    /// Gives an id to every call, and removes calls without a name.
    pub(crate) fn normalize_calls(&mut self, turn: u64) {
        self.calls.retain(|it| !it.name.is_empty());
        for (at, call) in self.calls.iter_mut().enumerate() {
            if call.id.is_empty() {
                call.id = format!("call_{turn}_{at}");
            }
        }
    }

    /// The message for the conversation.
    pub(crate) fn message(&self) -> Value {
        let mut message = json!({ "role": "assistant", "content": self.text });
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(|it| {
                let function = json!({ "name": it.name, "arguments": it.arguments });
                json!({ "id": it.id, "type": "function", "function": function })
            });
            message["tool_calls"] = calls.collect();
        }
        message
    }
}

/// Usage of all calls of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Meter {
    usage: Usage,
    pub(crate) turns: u64,
}

impl Meter {
    /// Adds the usage that a provider reported for one call.
    pub(crate) fn add(&mut self, reported: Option<&Value>) {
        let Some(reported) = reported else { return };
        let number = |names: &[&str]| names.iter().find_map(|it| reported.pointer(it)?.as_u64());
        let usage = &mut self.usage;
        for (sum, value) in [
            (&mut usage.input_tokens, number(&["/prompt_tokens", "/input_tokens"])),
            (&mut usage.output_tokens, number(&["/completion_tokens", "/output_tokens"])),
            (
                &mut usage.cache_read_tokens,
                number(&["/prompt_tokens_details/cached_tokens", "/cache_read_input_tokens"]),
            ),
            (&mut usage.cache_creation_tokens, number(&["/cache_creation_input_tokens"])),
        ] {
            if let Some(value) = value {
                *sum = Some(sum.unwrap_or(0).saturating_add(value));
            }
        }
        if let Some(cost) = reported.get("cost").or_else(|| reported.get("cost_usd")).and_then(Value::as_f64) {
            usage.cost_usd = Some(usage.cost_usd.unwrap_or(0.0) + cost);
        }
    }

    /// Tokens sent and received.
    pub(crate) fn total(&self) -> u64 {
        let (sent, received) = (self.usage.input_tokens, self.usage.output_tokens);
        sent.unwrap_or(0).saturating_add(received.unwrap_or(0))
    }

    pub(crate) fn usage(&self, model: &str, duration_ms: u64) -> Usage {
        let (turns, model) = (Some(self.turns), Some(model.to_owned()));
        Usage { duration_ms: Some(duration_ms), num_turns: turns, model, ..self.usage.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_calls_are_assembled_from_their_parts() {
        let mut reply = Reply::default();
        for part in [
            json!({ "choices": [{ "delta": { "content": "Let " } }] }),
            json!({ "choices": [{ "delta": { "content": "me." } }] }),
            json!({ "choices": [{ "delta": { "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "ls", "arguments": "" } }] } }] }),
            json!({ "choices": [{ "delta": { "tool_calls": [{ "index": 1, "function": { "name": "rm", "arguments": "{\"pa" } }] } }] }),
            json!({ "choices": [{ "delta": { "tool_calls": [{ "index": 0, "function": { "arguments": "{}" } }] } }] }),
            json!({ "choices": [{ "delta": { "tool_calls": [{ "index": 1, "function": { "arguments": "th\":1}" } }] }, "finish_reason": "tool_calls" }] }),
            json!({ "choices": [{ "delta": { "tool_calls": [{ "index": 9999999 }] } }] }),
            json!({ "choices": [], "usage": { "prompt_tokens": 5 } }),
        ] {
            reply.take(&part).unwrap();
        }
        reply.normalize_calls(3);
        let call = |id: &str, name: &str, arguments: &str| ModelCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        };
        assert_eq!(reply.calls, [call("a", "ls", "{}"), call("call_3_1", "rm", "{\"path\":1}")]);
        assert_eq!((reply.text.as_str(), reply.finish.as_deref()), ("Let me.", Some("tool_calls")));
        assert_eq!(reply.message()["tool_calls"][1]["function"]["name"], "rm");
        assert_eq!(reply.take(&json!({ "error": { "message": "overloaded" } })).unwrap_err(), "overloaded");
    }

    #[test]
    fn reported_usage_is_summed_and_missing_usage_is_unknown() {
        let mut meter = Meter::default();
        meter.add(None);
        assert_eq!(meter.usage("m", 1).input_tokens, None);
        meter.add(Some(
            &json!({ "prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": { "cached_tokens": 3 } }),
        ));
        meter.add(Some(&json!({ "prompt_tokens": 7, "completion_tokens": 1, "cost": 0.5 })));
        let usage = meter.usage("m", 1);
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_read_tokens), (Some(12), Some(3), Some(3)));
        assert_eq!((usage.cache_creation_tokens, usage.cost_usd, meter.total()), (None, Some(0.5), 15));
    }
}

//! A conversation with a model.

use serde_json::{Value, json};

use crate::llm::ModelCall;

/// Number of tool results that remain when a conversation is shortened.
const STAY: usize = 10;

/// The messages so far.
#[derive(Debug)]
pub(super) struct Conversation {
    messages: Vec<Value>,
    shortened: bool,
}

impl Conversation {
    pub(super) fn new(system: &str, prompt: &str) -> Self {
        let mut talk = Self { messages: Vec::new(), shortened: false };
        if !system.is_empty() {
            talk.push(json!({ "role": "system", "content": system }));
        }
        talk.user(prompt);
        talk
    }

    pub(super) fn messages(&self) -> &[Value] {
        &self.messages
    }

    pub(super) fn push(&mut self, message: Value) {
        self.messages.push(message);
    }

    pub(super) fn user(&mut self, text: &str) {
        self.push(json!({ "role": "user", "content": text }));
    }

    pub(super) fn add_tool_result(&mut self, call: &ModelCall, text: &str) {
        self.push(json!({ "role": "tool", "tool_call_id": call.id, "content": text }));
    }

    /// Removes the output of older tool calls, once. Returns whether it removed any.
    pub(super) fn shorten(&mut self) -> bool {
        if std::mem::replace(&mut self.shortened, true) {
            return false;
        }
        let answers = self.messages.iter_mut().rev().filter(|it| it["role"] == "tool");
        for message in answers.skip(STAY) {
            let length = message["content"].as_str().unwrap_or_default().chars().count();
            message["content"] = format!("[removed, {length} characters]").into();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_that_is_too_long_loses_its_oldest_answers_once() {
        let mut talk = Conversation::new("s", "p");
        for at in 0..12 {
            talk.add_tool_result(&ModelCall { id: at.to_string(), ..ModelCall::default() }, "äöü");
        }
        assert!(talk.shorten());
        let contents: Vec<&str> = talk.messages().iter().filter_map(|it| it["content"].as_str()).collect();
        assert_eq!(contents[..5], ["s", "p", "[removed, 3 characters]", "[removed, 3 characters]", "äöü"]);
        assert!(!talk.shorten());
    }
}

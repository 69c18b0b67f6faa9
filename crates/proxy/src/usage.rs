//! What a model's answer says of its price, read as it passes.

use serde::Deserialize;

/// Bytes of an answer that is no stream, or of a line of one, that are looked at.
const MAX_LOOKED_AT: usize = 16 << 20;

/// Numbers of one answer. All that went in counts as input, from a cache or not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) cache_read: Option<u64>,
    pub(crate) cache_creation: Option<u64>,
    pub(crate) cost_usd: Option<f64>,
}

/// Reads an answer.
#[derive(Debug)]
pub(crate) struct UsageReader {
    /// Lines of events; else one object.
    lines: bool,
    kept: Vec<u8>,
    /// What is kept is too long to be looked at.
    over: bool,
    usage: Usage,
    /// The provider has sent all numbers.
    has_ended: bool,
}

impl UsageReader {
    /// For an answer of that type.
    pub(crate) fn new(content_type: Option<&str>) -> Self {
        let lines = content_type.is_some_and(|it| it.trim_start().starts_with("text/event-stream"));
        Self { lines, kept: Vec::new(), over: false, usage: Usage::default(), has_ended: false }
    }

    /// Takes what passes.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while self.lines
            && let Some(at) = bytes.iter().position(|it| *it == b'\n')
        {
            self.keep(&bytes[..at]);
            self.line();
            bytes = &bytes[at + 1..];
        }
        self.keep(bytes);
    }

    /// Whether the answer came to its end as the provider marks it. Its client may close the connection before the end of the
    /// body is read.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What was said.
    pub(crate) fn finish(&mut self) -> Usage {
        self.line();
        self.usage
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.over |= self.kept.len() + bytes.len() > MAX_LOOKED_AT;
        if !self.over {
            self.kept.extend_from_slice(bytes);
        }
    }

    fn line(&mut self) {
        let line = std::mem::take(&mut self.kept);
        if std::mem::take(&mut self.over) {
            return;
        }
        let json = if self.lines { line.strip_prefix(b"data:").unwrap_or_default() } else { &line };
        self.has_ended |= self.lines && is_last_event(json);
        // Most events say nothing of it.
        if !json.windows(6).any(|it| it == b"\"usage") {
            return;
        }
        if let Ok(said) = serde_json::from_slice::<UsageEvent>(json) {
            self.has_ended |= !self.lines;
            let within = [said.message, said.response].into_iter().flatten().filter_map(|it| it.usage);
            for usage in said.usage.into_iter().chain(within) {
                self.usage.take(&usage);
            }
            if let Some(usage) = said.usage_metadata {
                self.usage.take_google(&usage);
            }
        }
    }
}

/// OpenAI's last line, Anthropic's last event, and that of OpenAI's responses.
fn is_last_event(json: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct TypedEvent {
        r#type: String,
    }
    let is_named = |name: &str| json.windows(name.len()).any(|it| it == name.as_bytes());
    let last = ["message_stop", "response.completed"];
    json.trim_ascii() == b"[DONE]"
        || last.into_iter().any(is_named)
            && serde_json::from_slice::<TypedEvent>(json).is_ok_and(|event| last.contains(&&*event.r#type))
}

impl Usage {
    /// Google counts cached tokens as part of its input, and thoughts beside the rest of its output.
    fn take_google(&mut self, said: &GoogleNumbers) {
        let output = said.candidates_token_count.unwrap_or(0).saturating_add(said.thoughts_token_count.unwrap_or(0));
        self.input = self.input.max(said.prompt_token_count);
        self.output = self.output.max((output > 0).then_some(output));
        self.cache_read = self.cache_read.max(said.cached_content_token_count);
    }

    /// Numbers of a stream grow, and each part says only some.
    fn take(&mut self, said: &Numbers) {
        let more = |mine: &mut Option<u64>, said: Option<u64>| *mine = (*mine).max(said);
        // One provider counts cached tokens as part of its input, the other beside it.
        let beside = said.cache_read_input_tokens.unwrap_or(0) + said.cache_creation_input_tokens.unwrap_or(0);
        more(&mut self.input, said.prompt_tokens.or_else(|| said.input_tokens.map(|it| it.saturating_add(beside))));
        more(&mut self.output, said.completion_tokens.or(said.output_tokens));
        let details = said.prompt_tokens_details.as_ref().or(said.input_tokens_details.as_ref());
        let cached = details.and_then(|it| it.cached_tokens);
        more(&mut self.cache_read, said.cache_read_input_tokens.or(cached));
        more(&mut self.cache_creation, said.cache_creation_input_tokens);
        let cost = said.cost.filter(|it| it.is_finite() && *it >= 0.0);
        self.cost_usd = self.cost_usd.into_iter().chain(cost).reduce(f64::max);
    }
}

#[derive(Deserialize)]
struct UsageEvent {
    usage: Option<Numbers>,
    /// Where Anthropic's first event has it.
    message: Option<UsageHolder>,
    /// Where the last event of `OpenAI`'s responses has it.
    response: Option<UsageHolder>,
    #[serde(rename = "usageMetadata")]
    usage_metadata: Option<GoogleNumbers>,
}

#[derive(Deserialize)]
struct UsageHolder {
    usage: Option<Numbers>,
}

#[derive(Deserialize)]
struct Numbers {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cost: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GoogleNumbers {
    prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content_type: &str, text: &str, size: usize) -> Usage {
        let mut reader = UsageReader::new(Some(content_type));
        text.as_bytes().chunks(size).for_each(|it| reader.push(it));
        reader.finish()
    }

    #[test]
    fn an_answer_ends_where_its_provider_says_so_and_not_where_its_text_does() {
        let (json, events) = ("application/json", "text/event-stream");
        for (content_type, text, has_ended) in [
            (json, r#"{"usage":{"completion_tokens":5}}"#, true),
            (json, r#"{"usage":{"completion_tokens":5}"#, false),
            (events, "data: {\"usage\":{\"completion_tokens\":5}}\n", false),
            (events, "data: {\"usage\":null}\n\ndata: [DONE]\n", true),
            (events, "data: {\"type\":\"message_stop\"}\n", true),
            (events, "data: {\"type\":\"response.completed\",\"response\":{}}\n", true),
            (
                events,
                "data: {\"type\":\"content_block_delta\",\"text\":\"{\\\"type\\\":\\\"message_stop\\\"}\"}\n",
                false,
            ),
        ] {
            let mut reader = UsageReader::new(Some(content_type));
            reader.push(text.as_bytes());
            reader.finish();
            assert_eq!(reader.has_ended(), has_ended, "{text}");
        }
    }

    #[test]
    fn all_shapes_are_read_however_they_are_cut() {
        let json = r#"{"id":"x","usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"cost":0.25}}"#;
        let events = "data: {\"choices\":[],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\
                      \"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":4},\"cost\":0.25}}\r\n\ndata: [DONE]\n";
        let openai =
            Usage { input: Some(10), output: Some(5), cache_read: Some(4), cost_usd: Some(0.25), ..Usage::default() };
        let anthropic = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\
                         \"cache_read_input_tokens\":20,\"cache_creation_input_tokens\":7,\"output_tokens\":1}}}\n\n\
                         data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}";
        let responses = "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":9,\
                         \"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":6}}}\n\n";
        let google = "data: {\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":1}}\r\n\r\n\
                      data: {\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":2,\
                      \"thoughtsTokenCount\":4,\"cachedContentTokenCount\":4}}\r\n\r\n";
        let expected =
            Usage { input: Some(30), output: Some(15), cache_read: Some(20), cache_creation: Some(7), cost_usd: None };
        for size in [1, 3, 50, 1000] {
            assert_eq!(read("application/json", json, size), openai, "{size}");
            assert_eq!(read("text/event-stream; charset=utf-8", events, size), openai, "{size}");
            assert_eq!(read("text/event-stream", anthropic, size), expected, "{size}");
            let expected = Usage { input: Some(9), output: Some(6), cache_read: Some(4), ..Usage::default() };
            assert_eq!(read("text/event-stream", responses, size), expected, "{size}");
            assert_eq!(read("text/event-stream", google, size), expected, "{size}");
        }
        for odd in ["", "{", r#"{"usage":7}"#, r#"{"usage":{"prompt_tokens":-1}}"#, "[1]"] {
            assert_eq!(read("application/json", odd, 10), Usage::default(), "{odd}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_not_kept() {
        let mut reader = UsageReader::new(Some("text/event-stream"));
        for _ in 0..20 {
            reader.push(&vec![b'x'; 1 << 20]);
        }
        assert!(reader.kept.capacity() <= 2 * MAX_LOOKED_AT);
        reader.push(b"\ndata: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n");
        assert_eq!(reader.finish().output, Some(2));
    }
}

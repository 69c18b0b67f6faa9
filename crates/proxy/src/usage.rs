//! Reads the usage in a model's response while it is forwarded.

use serde::Deserialize;

/// Maximum number of bytes to parse, of a response or of one line of a stream.
const MAX_PARSED: usize = 16 << 20;

/// The usage of one response. Input includes cached tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) cache_read: Option<u64>,
    pub(crate) cache_creation: Option<u64>,
    pub(crate) cost_usd: Option<f64>,
}

/// Reads the usage from a response.
#[derive(Debug)]
pub(crate) struct UsageReader {
    /// Whether the response is a stream of events; otherwise it is one object.
    lines: bool,
    buffer: Vec<u8>,
    /// The buffer is too long to be parsed.
    over: bool,
    usage: Usage,
    /// The provider has sent all usage.
    has_ended: bool,
}

impl UsageReader {
    /// Creates a reader for a response of that content type.
    pub(crate) fn new(content_type: Option<&str>) -> Self {
        let lines = content_type.is_some_and(|it| it.trim_start().starts_with("text/event-stream"));
        Self { lines, buffer: Vec::new(), over: false, usage: Usage::default(), has_ended: false }
    }

    /// Parses forwarded bytes.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while self.lines
            && let Some(at) = bytes.iter().position(|it| *it == b'\n')
        {
            self.buffer(&bytes[..at]);
            self.line();
            bytes = &bytes[at + 1..];
        }
        self.buffer(bytes);
    }

    /// Whether the response is complete by the provider's own marker. Clients may disconnect before they have read the
    /// whole body.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the usage at the end of the response.
    pub(crate) fn finish(&mut self) -> Usage {
        self.line();
        self.usage
    }

    fn buffer(&mut self, bytes: &[u8]) {
        self.over |= self.buffer.len() + bytes.len() > MAX_PARSED;
        if !self.over {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn line(&mut self) {
        let line = std::mem::take(&mut self.buffer);
        if std::mem::take(&mut self.over) {
            return;
        }
        let json = if self.lines { line.strip_prefix(b"data:").unwrap_or_default() } else { &line };
        self.has_ended |= self.lines && is_last_event(json);
        // Most events contain no usage.
        if !json.windows(6).any(|it| it == b"\"usage") {
            return;
        }
        if let Ok(event) = serde_json::from_slice::<UsageEvent>(json) {
            self.has_ended |= !self.lines;
            let within = [event.message, event.response].into_iter().flatten().filter_map(|it| it.usage);
            for usage in event.usage.into_iter().chain(within) {
                self.usage.take(&usage);
            }
            if let Some(usage) = event.usage_metadata {
                self.usage.take_google(&usage);
            }
        }
    }
}

/// Whether it is OpenAI's last line, Anthropic's last event, or that of OpenAI's responses.
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
    /// Google includes cached tokens in the input, but not thoughts in the output.
    fn take_google(&mut self, reported: &GoogleNumbers) {
        let output =
            reported.candidates_token_count.unwrap_or(0).saturating_add(reported.thoughts_token_count.unwrap_or(0));
        self.input = self.input.max(reported.prompt_token_count);
        self.output = self.output.max((output > 0).then_some(output));
        self.cache_read = self.cache_read.max(reported.cached_content_token_count);
    }

    /// The numbers grow in the course of a stream, and each event contains only some of them.
    fn take(&mut self, reported: &Numbers) {
        let more = |mine: &mut Option<u64>, reported: Option<u64>| *mine = (*mine).max(reported);
        // OpenAI includes cached tokens in the input, Anthropic does not.
        let beside = reported.cache_read_input_tokens.unwrap_or(0) + reported.cache_creation_input_tokens.unwrap_or(0);
        more(
            &mut self.input,
            reported.prompt_tokens.or_else(|| reported.input_tokens.map(|it| it.saturating_add(beside))),
        );
        more(&mut self.output, reported.completion_tokens.or(reported.output_tokens));
        let details = reported.prompt_tokens_details.as_ref().or(reported.input_tokens_details.as_ref());
        let cached = details.and_then(|it| it.cached_tokens);
        more(&mut self.cache_read, reported.cache_read_input_tokens.or(cached));
        more(&mut self.cache_creation, reported.cache_creation_input_tokens);
        let cost = reported.cost.filter(|it| it.is_finite() && *it >= 0.0);
        self.cost_usd = self.cost_usd.into_iter().chain(cost).reduce(f64::max);
    }
}

#[derive(Deserialize)]
struct UsageEvent {
    usage: Option<Numbers>,
    /// Contained in Anthropic's first event.
    message: Option<UsageHolder>,
    /// Contained in the last event of `OpenAI`'s responses.
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
    fn a_response_ends_at_the_providers_marker_and_not_at_the_same_text() {
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
    fn all_shapes_are_read_wherever_they_are_split() {
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
    fn a_line_that_is_too_long_is_not_buffered() {
        let mut reader = UsageReader::new(Some("text/event-stream"));
        for _ in 0..20 {
            reader.push(&vec![b'x'; 1 << 20]);
        }
        assert!(reader.buffer.capacity() <= 2 * MAX_PARSED);
        reader.push(b"\ndata: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n");
        assert_eq!(reader.finish().output, Some(2));
    }
}

//! Finds a message's `id` and nesting depth before it is parsed.
//!
//! The scan reads bytes as they arrive and stores none, so that a message that is too long, too deep or invalid is still
//! answered under its `id`. Clients often write `id` last.

use serde_json::Value;

/// Maximum number of stored bytes of a key or an `id`.
const TOKEN: usize = 1024;

/// The state of the scan.
#[derive(Debug, Default)]
pub struct MessageScan {
    depth: usize,
    deepest: usize,
    in_string: bool,
    is_escaped: bool,
    /// Whether the value of a top-level key is being read, not a key.
    in_value: bool,
    key: Vec<u8>,
    /// The current key or plain value.
    token: Vec<u8>,
    id: Option<Value>,
    has_id: bool,
    has_method: bool,
    has_outcome: bool,
}

impl MessageScan {
    /// Reads more of the message.
    pub fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.keep(byte);
                self.depth += 1;
                self.deepest = self.deepest.max(self.depth);
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.end_value();
                }
            }
            b',' if self.depth == 1 => self.end_value(),
            b':' if self.depth == 1 && !self.in_value => {
                self.key = std::mem::take(&mut self.token);
                self.in_value = true;
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < TOKEN {
            self.token.push(byte);
        }
    }

    fn end_value(&mut self) {
        let token = std::mem::take(&mut self.token);
        if !std::mem::take(&mut self.in_value) {
            return;
        }
        match self.key.as_slice() {
            br#""id""# => {
                self.has_id = true;
                self.id = serde_json::from_slice(&token).ok().filter(is_id);
            }
            br#""method""# => self.has_method = true,
            br#""result""# | br#""error""# => self.has_outcome = true,
            _ => {}
        }
    }

    /// Depth of nested objects and lists.
    pub fn levels(&self) -> usize {
        self.deepest
    }

    /// The `id`, if it is one.
    pub fn id(&self) -> Option<Value> {
        self.id.clone()
    }

    /// Whether it needs no answer: it is a response or a notification. A truncated message may have had a later `id`.
    pub fn wants_none(&self) -> bool {
        let is_whole = self.depth == 0 && !self.in_string && self.deepest > 0;
        (self.has_outcome && !self.has_method) || (is_whole && self.has_method && !self.has_id)
    }
}

fn is_id(value: &Value) -> bool {
    value.is_string() || value.is_i64() || value.is_u64()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::MessageScan;

    fn scan(text: &str) -> MessageScan {
        let mut scan = MessageScan::default();
        // For any split of the bytes.
        for piece in text.as_bytes().chunks(3) {
            scan.feed(piece);
        }
        scan
    }

    #[test]
    fn the_id_is_found_at_any_position_of_the_top_level_only() {
        for (text, id) in [
            (r#"{"id":7,"method":"x"}"#, json!(7)),
            (r#"{ "method" : "x", "params":{"id":1,"a":[{"id":2}]}, "id" : "a\"b" }"#, json!("a\"b")),
            (r#"{"method":"id","params":"\",\"id\":5","x":1}"#, Value::Null),
            (r#"{"id":1.5}"#, Value::Null),
            (r#"{"id":{"id":1}}"#, Value::Null),
            (r#"[{"id":1}]"#, Value::Null),
            (r#"{"id":3,"method":"#, json!(3)),
            ("hello: 1, id: 2", Value::Null),
        ] {
            assert_eq!(scan(text).id().unwrap_or_default(), id, "{text}");
        }
    }

    #[test]
    fn levels_count_brackets_outside_of_strings() {
        assert_eq!(scan(r#"{"a":[{"b":"[[[[[\"[["}]}"#).levels(), 3);
        assert_eq!(scan(&"[".repeat(5000)).levels(), 5000);
        assert_eq!(scan("]]]]{}").levels(), 1);
    }

    #[test]
    fn responses_and_notifications_need_no_answer() {
        for text in [r#"{"id":1,"result":{}}"#, r#"{"id":1,"error":{}}"#, r#"{"method":"notifications/x"}"#] {
            assert!(scan(text).wants_none(), "{text}");
        }
        let cut = r#"{"method":"tools/call","params":{"name":"x"},"jsonrpc":"2.0","id":2"#;
        for end in 1..cut.len() {
            assert!(!scan(&cut[..end]).wants_none(), "{}", &cut[..end]);
        }
        for text in ["", "x", "{}", r#"{"id":1}"#, r#"{"id":1,"method":"x"}"#, r#"{"id":null,"method":"x"}"#] {
            assert!(!scan(text).wants_none(), "{text}");
        }
    }
}

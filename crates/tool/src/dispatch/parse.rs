//! Parses text as one JSON object, with limits for its size and nesting, and without duplicate keys.

use std::cell::Cell;
use std::fmt;

use coracle_context::failure::{Code, Failure};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

/// The largest call, in bytes.
pub const MAX_BYTES: usize = 8 << 20;

/// The deepest nesting of objects and lists.
const MAX_LEVELS: usize = 32;

/// Parses a call.
///
/// # Errors
/// [`Code::InvalidJson`].
pub fn object(text: &[u8]) -> Result<Map<String, Value>, Failure> {
    object_within(text, MAX_LEVELS)
}

/// Parses a message that has a call in one of its fields.
///
/// # Errors
/// [`Code::InvalidJson`].
pub fn message(text: &[u8]) -> Result<Map<String, Value>, Failure> {
    object_within(text, MAX_LEVELS + 1)
}

fn object_within(text: &[u8], max_levels: usize) -> Result<Map<String, Value>, Failure> {
    if text.len() > MAX_BYTES {
        return Err(
            invalid(format!("the call is larger than {MAX_BYTES} bytes")).hint("copy large files with `copy_in`")
        );
    }
    let text = std::str::from_utf8(text).map_err(|err| invalid(format!("the call is not UTF-8: {err}")))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict { levels: &Cell::new(0), max_levels }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|err| unreadable(&err))?;
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(invalid("the call is not a JSON object")),
    }
}

/// Checks the nesting of an object that the transport has parsed.
pub(super) fn within_levels(object: &Map<String, Value>) -> Result<(), Failure> {
    let deepest = object.values().map(levels).max().unwrap_or(0) + 1;
    if deepest > MAX_LEVELS { Err(invalid(too_deep())) } else { Ok(()) }
}

fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

fn too_deep() -> String {
    format!("more than {MAX_LEVELS} levels")
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(Code::InvalidJson, message).hint("send one JSON object such as `{\"operation\": \"list\"}`")
}

fn unreadable(err: &serde_json::Error) -> Failure {
    let at = format!("{}:{}", err.line(), err.column());
    let why = match err.classify() {
        Category::Eof => "it ends too early".to_owned(),
        // The visitor below has its own messages.
        Category::Data => err.to_string().split(" at line ").next().unwrap_or_default().to_owned(),
        Category::Syntax | Category::Io => "unexpected text".to_owned(),
    };
    let place = format!("line {}, column {}", err.line(), err.column());
    invalid(format!("the call is not valid JSON ({place}): {why}")).detail("at", at)
}

/// Parses a JSON value and refuses duplicate keys: `serde_json::Value` would silently use the last one.
struct Strict<'a> {
    levels: &'a Cell<usize>,
    max_levels: usize,
}

impl Strict<'_> {
    fn enter<E: serde::de::Error>(&self) -> Result<Self, E> {
        self.levels.set(self.levels.get() + 1);
        if self.levels.get() > self.max_levels { Err(E::custom(too_deep())) } else { Ok(self.inner()) }
    }

    fn inner(&self) -> Self {
        Self { levels: self.levels, max_levels: self.max_levels }
    }

    fn exit_level(&self) {
        self.levels.set(self.levels.get() - 1);
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        self.enter::<A::Error>()?;
        while let Some(item) = from.next_element_seed(self.inner())? {
            items.push(item);
        }
        self.exit_level();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        self.enter::<A::Error>()?;
        while let Some(name) = from.next_key::<String>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate key `{}`", name.escape_debug())));
            }
            fields.insert(name, from.next_value_seed(self.inner())?);
        }
        self.exit_level();
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{message, object, within_levels};

    fn check(text: &str, message: &str) {
        let failure = object(text.as_bytes()).unwrap_err();
        assert_eq!(failure.code.word(), "invalid_json", "{text:.40}");
        assert!(failure.message.contains(message), "{}", failure.message);
    }

    fn nested(levels: usize) -> String {
        format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1))
    }

    #[test]
    fn invalid_json_is_reported_with_its_position() {
        check("", "not valid JSON");
        check("{\"a\":1", "not valid JSON");
        check("{} x", "(line 1, column 4): unexpected text");
        check("{\"a\":", "it ends too early");
        check("[1]", "not a JSON object");
        check("{\"a\":{\"b\":1,\"b\":2}}", "duplicate key `b`");
        check(&nested(33), "more than 32 levels");
        assert_eq!(object(b"{\n 1}").unwrap_err().details["at"], "2:2");
    }

    #[test]
    fn nesting_is_limited_and_not_the_number_of_lists() {
        assert!(object(nested(32).as_bytes()).is_ok());
        assert!(message(format!("{{\"call\":{}}}", nested(32)).as_bytes()).is_ok());
        assert!(message(format!("{{\"call\":{}}}", nested(33)).as_bytes()).is_err());
        let wide = format!("{{\"a\":[{}[]]}}", "[],".repeat(100));
        let wide = object(wide.as_bytes()).unwrap();
        assert!(within_levels(&wide).is_ok());
        let deep = serde_json::from_str::<Value>(&nested(33)).unwrap();
        assert!(within_levels(deep.as_object().unwrap()).is_err());
    }

    #[test]
    fn a_call_is_limited_in_size_and_must_be_utf8() {
        assert!(object(&vec![b' '; 9 << 20]).unwrap_err().message.contains("larger than 8388608 bytes"));
        assert!(object(b"{\"a\":\"\xff\"}").unwrap_err().message.contains("not UTF-8"));
    }

    #[test]
    fn values_are_unchanged() {
        let read = object(br#"{"a":[null,true,-1,18446744073709551615,1.5,"\u00e9\n"]}"#).unwrap();
        let same: Value = serde_json::from_str(r#"{"a":[null,true,-1,18446744073709551615,1.5,"\u00e9\n"]}"#).unwrap();
        assert_eq!(Value::Object(read), same);
    }
}

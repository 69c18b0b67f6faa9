//! The content of a file as a call gives it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_context::arg_types::inline_schema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Maximum size of one file. `copy_in` takes larger ones.
const MAX_BYTES: usize = 1 << 20;

/// Bytes of a file, and its permission bits if given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub mode: Option<u32>,
}

/// The form as an object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentObject {
    content: Option<String>,
    content_base64: Option<String>,
    mode: Option<serde_json::Value>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a string, or an object such as `{"content": "text", "mode": "0644"}`"#)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content { bytes: text.as_bytes().to_owned(), mode: None })
            }

            fn visit_map<M: MapAccess<'de>>(self, from: M) -> Result<Content, M::Error> {
                ContentObject::deserialize(MapAccessDeserializer::new(from))?.read()
            }
        }
        let read = from.deserialize_any(Read)?;
        if read.bytes.len() > MAX_BYTES {
            return Err(D::Error::custom("a file of more than 1 MiB; use `copy_in` after `create`"));
        }
        Ok(read)
    }
}

impl ContentObject {
    fn read<E: Error>(self) -> Result<Content, E> {
        let bytes = match (self.content, self.content_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => STANDARD.decode(text).map_err(|err| E::custom(format!("content_base64: {err}")))?,
            _ => return Err(E::custom("expected either `content` or `content_base64`")),
        };
        let mode = self.mode.filter(|it| !it.is_null()).map(|it| mode(&it).ok_or_else(wrong_mode)).transpose()?;
        Ok(Content { bytes, mode })
    }
}

/// A mode as a number is refused: some callers would write it as decimal, others as octal.
fn mode(given: &serde_json::Value) -> Option<u32> {
    let digits = given.as_str()?;
    let octal = (3..=4).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
    octal.then(|| u32::from_str_radix(digits, 8).ok()).flatten().filter(|it| *it <= 0o777)
}

fn wrong_mode<E: Error>() -> E {
    E::custom("mode: expected octal digits as text, at most `\"0777\"`")
}

inline_schema!(Content, "Content", { "type": ["string", "object"] });

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Content;

    fn read(value: Value) -> Result<(Vec<u8>, Option<u32>), String> {
        serde_json::from_value::<Content>(value).map(|it| (it.bytes, it.mode)).map_err(|err| err.to_string())
    }

    #[test]
    fn bytes_are_text_or_base64_with_or_without_a_mode() {
        assert_eq!(read(json!("a\n")).unwrap(), (b"a\n".to_vec(), None));
        assert_eq!(read(json!({ "content": "a", "mode": "0755" })).unwrap(), (b"a".to_vec(), Some(0o755)));
        assert_eq!(read(json!({ "content_base64": "/wA=", "mode": null })).unwrap(), (vec![255, 0], None));
    }

    #[test]
    fn missing_bytes_too_many_bytes_and_invalid_modes_are_refused() {
        for (value, why) in [
            (json!(7), "expected a string"),
            (json!({}), "expected either"),
            (json!({ "content": "a", "content_base64": "" }), "expected either"),
            (json!({ "content_base64": "?" }), "content_base64"),
            (json!({ "content": "a", "mod": "644" }), "unknown field"),
            (json!({ "content": "a", "mode": 644 }), "octal digits as text"),
            (json!({ "content": "a", "mode": "4755" }), "octal digits as text"),
            (json!({ "content": "a", "mode": "9" }), "octal digits as text"),
            (json!("x".repeat(1 << 21)), "1 MiB"),
        ] {
            assert!(read(value.clone()).unwrap_err().contains(why), "{value}");
        }
    }
}

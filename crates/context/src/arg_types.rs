//! Types that arguments and the configuration share, with their schema.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use coracle_types::Command;
use coracle_workspace::arguments::IS_NAME;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Implements the schema of a type with a hand-written deserialiser.
#[macro_export]
macro_rules! inline_schema {
    ($type:ty, $name:literal, $schema:tt) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}
pub use inline_schema;

/// A span of time: seconds as a number, or `"90s"`, `"10m"`, `"24h"`, `"7d"`, `"1h30m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub Duration);

/// Maximum length; a longer span would overflow the clock.
const LONGEST_S: f64 = 1e9;

impl Seconds {
    /// Creates a span of whole seconds.
    #[must_use]
    pub const fn new(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Returns the span, or none for 0.
    #[must_use]
    pub fn unless_zero(self) -> Option<Duration> {
        (!self.0.is_zero()).then_some(self.0)
    }

    /// Parses text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(seconds) = text.parse::<u32>() {
            return text.starts_with(|it: char| it.is_ascii_digit()).then(|| Self::new(seconds.into()));
        }
        let (mut total, mut rest) = (0.0, text);
        while !rest.is_empty() {
            let (digits, unit) = rest.split_at(rest.find(|it: char| !it.is_ascii_digit())?);
            let factor = match unit.bytes().next()? {
                b's' => 1,
                b'm' => 60,
                b'h' => 3600,
                b'd' => 86400,
                _ => return None,
            };
            total += f64::from(digits.parse::<u32>().ok()?) * f64::from(factor);
            rest = &unit[1..];
        }
        (!text.is_empty()).then(|| Self::from_secs(total)).flatten()
    }

    fn from_secs(seconds: f64) -> Option<Self> {
        (0.0..=LONGEST_S).contains(&seconds).then(|| Self(Duration::from_secs_f64(seconds)))
    }
}

impl fmt::Display for Seconds {
    /// Uses the largest unit without a remainder.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0.as_secs();
        if self.0.subsec_nanos() > 0 {
            return write!(f, "{}s", self.0.as_secs_f64());
        }
        for (unit, factor) in [("d", 86400), ("h", 3600), ("m", 60)] {
            if whole > 0 && whole.is_multiple_of(factor) {
                return write!(f, "{}{unit}", whole / factor);
            }
        }
        write!(f, "{whole}s")
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_f64(self.0.as_secs_f64())
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Seconds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("seconds as a number, or text such as `90s`, `10m`, `24h`, `7d`")
            }

            fn visit_u64<E: Error>(self, it: u64) -> Result<Seconds, E> {
                u32::try_from(it)
                    .ok()
                    .and_then(|it| Seconds::from_secs(f64::from(it)))
                    .ok_or_else(|| wrong(Unexpected::Unsigned(it)))
            }

            fn visit_i64<E: Error>(self, it: i64) -> Result<Seconds, E> {
                u64::try_from(it).map_err(|_| wrong(Unexpected::Signed(it))).and_then(|it| self.visit_u64(it))
            }

            fn visit_f64<E: Error>(self, it: f64) -> Result<Seconds, E> {
                Seconds::from_secs(it).ok_or_else(|| wrong(Unexpected::Float(it)))
            }

            fn visit_str<E: Error>(self, it: &str) -> Result<Seconds, E> {
                Seconds::parse(it).ok_or_else(|| wrong(Unexpected::Str(it)))
            }
        }
        fn wrong<E: Error>(it: Unexpected<'_>) -> E {
            E::invalid_value(it, &Read)
        }
        from.deserialize_any(Read)
    }
}

inline_schema!(Seconds, "Seconds", { "type": ["number", "string"], "examples": [90, "90s"] });

/// A command: text for `/bin/sh -c`, or a list of arguments that runs without a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script(pub Command);

/// Maximum size of a command with all its arguments.
const MAX_COMMAND_BYTES: usize = 1 << 20;

impl Script {
    fn from_command<E: Error>(command: Command) -> Result<Self, E> {
        let (empty, bytes) = match &command {
            Command::Shell(text) => (text.is_empty(), text.len()),
            Command::Argv(words) => (words.first().is_none_or(String::is_empty), words.iter().map(String::len).sum()),
        };
        if matches!(&command, Command::Argv(words) if words.first().is_some_and(|it| it.starts_with('-'))) {
            return Err(E::custom("a program's name may not begin with `-`"));
        }
        match (empty, bytes > MAX_COMMAND_BYTES) {
            (true, _) => Err(E::custom("a command may not be empty")),
            (_, true) => Err(E::custom("a command may have at most 1 MiB; give data as `stdin` or as a file")),
            _ => Ok(Self(command)),
        }
    }
}

impl Serialize for Script {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Command::Shell(text) => text.serialize(into),
            Command::Argv(words) => words.serialize(into),
        }
    }
}

impl<'de> Deserialize<'de> for Script {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Script;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: Error>(self, it: &str) -> Result<Script, E> {
                Script::from_command(Command::Shell(it.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Script, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = from.next_element()? {
                    words.push(word);
                }
                Script::from_command(Command::Argv(words))
            }
        }
        from.deserialize_any(Read)
    }
}

inline_schema!(Script, "Script", { "type": ["string", "array"], "items": { "type": "string" }, "examples": ["ls -l", ["ls", "-l"]] });

/// Schema of a text that is a name: `#[schemars(with = "Name")]`. An invalid one is `invalid_name`.
#[derive(Debug)]
pub struct Name;

inline_schema!(Name, "Name", { "type": "string", IS_NAME: true });

/// Schema of names and values: `#[schemars(with = "Option<Pairs>")]` on a field that [`pairs`] deserialises.
#[derive(Debug)]
pub struct Pairs;

inline_schema!(Pairs, "Pairs", {
    "type": ["object", "array"],
    "items": { "type": "string" },
    "examples": [{ "NAME": "value" }, ["NAME=value"]],
});

/// Deserialises names and values: an object, or a list of `NAME=VALUE`.
pub fn pairs<'de, D, V>(from: D) -> Result<Option<BTreeMap<String, V>>, D::Error>
where
    D: Deserializer<'de>,
    V: DeserializeOwned,
{
    struct Read<V>(PhantomData<V>);
    impl<'de, V: DeserializeOwned> Visitor<'de> for Read<V> {
        type Value = Option<BTreeMap<String, V>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(r#"names and values such as `{"NAME": "value"}` or `["NAME=value"]`"#)
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<M: MapAccess<'de>>(self, from: M) -> Result<Self::Value, M::Error> {
            BTreeMap::deserialize(MapAccessDeserializer::new(from)).map(Some)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut found = BTreeMap::new();
            while let Some(pair) = from.next_element::<String>()? {
                let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
                    return Err(A::Error::custom("an item is not `NAME=VALUE`"));
                };
                found.insert(name.to_owned(), V::deserialize(value.to_owned().into_deserializer())?);
            }
            Ok(Some(found))
        }
    }
    from.deserialize_any(Read(PhantomData))
}

/// Schema of a size: `#[schemars(with = "Size")]` on a `ByteSize`.
#[derive(Debug)]
pub struct Size;

inline_schema!(Size, "Size", { "type": ["integer", "string"], "examples": ["512m"] });

pub use coracle_images::profile::Passthrough;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coracle_types::Command;
    use serde_json::{Value, json};

    use super::{Script, Seconds, pairs};

    fn seconds(value: Value) -> Option<f64> {
        serde_json::from_value::<Seconds>(value).ok().map(|it| it.0.as_secs_f64())
    }

    #[test]
    fn spans_are_numbers_or_words() {
        for (given, read) in [(json!(5), 5.0), (json!(0.1), 0.1), (json!("90s"), 90.0), (json!("10m"), 600.0)] {
            assert_eq!(seconds(given.clone()), Some(read), "{given}");
        }
        assert_eq!(seconds(json!("24h")), seconds(json!("1d")));
        for bad in [json!("soon"), json!(-1), json!("-1s"), json!(""), json!("m"), json!("é"), json!(1e300), json!([])]
        {
            assert_eq!(seconds(bad.clone()), None, "{bad}");
        }
    }

    #[test]
    fn spans_are_shown_in_their_largest_unit() {
        let shown = |text: &str| Seconds::parse(text).unwrap().to_string();
        assert_eq!(shown("600"), "10m");
        assert_eq!(shown("48h"), "2d");
        assert_eq!(shown("0"), "0s");
        assert_eq!(Seconds(Duration::from_millis(1500)).to_string(), "1.5s");
    }

    #[test]
    fn pairs_are_an_object_or_a_list() {
        let read = |value: Value| pairs::<_, String>(value).map_err(|err: serde_json::Error| err.to_string());
        let both = read(json!({ "A": "1=2", "B": "" })).unwrap();
        assert_eq!(read(json!(["A=1=2", "B="])).unwrap(), both);
        assert_eq!(read(Value::Null).unwrap(), None);
        for bad in [json!("A=1"), json!(["A"]), json!(["=1"]), json!([7]), json!(7)] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_command_is_text_or_words_and_never_empty() {
        let read = |value: Value| serde_json::from_value::<Script>(value).map(|it| it.0);
        assert_eq!(read(json!("ls")).unwrap(), Command::Shell("ls".into()));
        assert_eq!(read(json!(["ls", ""])).unwrap(), Command::Argv(vec!["ls".into(), String::new()]));
        for bad in [json!(""), json!([]), json!([""]), json!(7), json!(["ls", 7]), json!("x".repeat(1 << 21))] {
            assert!(read(bad).is_err());
        }
    }
}

//! A serde deserializer for arguments. Its error has the path of the invalid value and the reason as data; `serde_json`
//! has them only as text.

use std::fmt;
use std::{iter::Enumerate, slice};

use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess, SeqAccess};
use serde::de::{Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value, map};

/// A value that does not fit its type.
#[derive(Debug)]
pub(super) struct Misfit {
    /// From the value outwards: the innermost segment first.
    path: Vec<Segment>,
    pub(super) reason: MisfitReason,
}

/// One step from a value to a value in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Index(usize),
    Field(String),
}

/// Why a value does not fit.
#[derive(Debug)]
pub(super) enum MisfitReason {
    /// It has another type or is out of range. Has what the deserializer expects.
    Unfit(String),
    UnknownWord(&'static [&'static str]),
    UnknownField {
        name: String,
        known: &'static [&'static str],
    },
    MissingField(&'static str),
    DuplicateField(&'static str),
    /// Its type has a message of its own.
    Message(String),
}

impl Misfit {
    /// From the outermost segment to the value.
    pub(super) fn path(&self) -> impl Iterator<Item = &Segment> {
        self.path.iter().rev()
    }

    fn within(mut self, segment: Segment) -> Self {
        self.path.push(segment);
        self
    }
}

/// The path as callers write it: `mounts[1].host`.
pub(super) fn shown<'a>(path: impl Iterator<Item = &'a Segment>) -> String {
    path.fold(String::new(), |path, segment| match segment {
        Segment::Index(index) => format!("{path}[{index}]"),
        Segment::Field(name) if path.is_empty() => name.clone(),
        Segment::Field(name) => format!("{path}.{name}"),
    })
}

impl From<MisfitReason> for Misfit {
    fn from(reason: MisfitReason) -> Self {
        Self { path: Vec::new(), reason }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            MisfitReason::Unfit(expected) => write!(f, "expected {expected}"),
            MisfitReason::UnknownWord(_) => f.write_str("unknown word"),
            MisfitReason::UnknownField { name, .. } => write!(f, "unknown field `{name}`"),
            MisfitReason::MissingField(name) => write!(f, "missing field `{name}`"),
            MisfitReason::DuplicateField(name) => write!(f, "`{name}` is given twice, once by another name"),
            MisfitReason::Message(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Misfit {}

impl Error for Misfit {
    fn custom<T: fmt::Display>(message: T) -> Self {
        MisfitReason::Message(message.to_string()).into()
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        MisfitReason::Unfit(expected.to_string()).into()
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        MisfitReason::Unfit(expected.to_string()).into()
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        MisfitReason::Unfit(expected.to_string()).into()
    }

    fn unknown_variant(_: &str, known: &'static [&'static str]) -> Self {
        MisfitReason::UnknownWord(known).into()
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        MisfitReason::UnknownField { name: name.to_owned(), known }.into()
    }

    fn missing_field(name: &'static str) -> Self {
        MisfitReason::MissingField(name).into()
    }

    fn duplicate_field(name: &'static str) -> Self {
        MisfitReason::DuplicateField(name).into()
    }
}

/// Deserializes one value.
struct ValueReader<'de>(&'de Value);

/// Deserializes the fields of an object.
struct ObjectReader<'de> {
    fields: map::Iter<'de>,
    next: Option<(&'de str, &'de Value)>,
}

struct ItemReader<'de>(Enumerate<slice::Iter<'de, Value>>);

/// Deserializes a type from the fields of an object.
pub(super) fn read<'de, T: Deserialize<'de>>(object: &'de Map<String, Value>) -> Result<T, Misfit> {
    T::deserialize(MapAccessDeserializer::new(ObjectReader::new(object)))
}

impl<'de> ObjectReader<'de> {
    fn new(object: &'de Map<String, Value>) -> Self {
        Self { fields: object.iter(), next: None }
    }
}

impl<'de> Deserializer<'de> for ValueReader<'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(it) => visitor.visit_bool(*it),
            Value::Number(it) => match (it.as_u64(), it.as_i64()) {
                (Some(it), _) => visitor.visit_u64(it),
                (_, Some(it)) => visitor.visit_i64(it),
                _ => visitor.visit_f64(it.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(it) => visitor.visit_borrowed_str(it),
            Value::Array(items) => visitor.visit_seq(ItemReader(items.iter().enumerate())),
            Value::Object(fields) => visitor.visit_map(ObjectReader::new(fields)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let word: &str = self.0.as_str().ok_or_else(|| MisfitReason::Unfit("string or map".to_owned()))?;
        let word: StrDeserializer<'_, Misfit> = word.into_deserializer();
        visitor.visit_enum(word)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> SeqAccess<'de> for ItemReader<'de> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some((index, item)) = self.0.next() else { return Ok(None) };
        seed.deserialize(ValueReader(item)).map(Some).map_err(|err| err.within(Segment::Index(index)))
    }
}

impl<'de> MapAccess<'de> for ObjectReader<'de> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        let Some((name, value)) = self.fields.next() else { return Ok(None) };
        self.next = Some((name, value));
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Misfit> {
        let (name, value) = self.next.take().expect("a value is read after its key");
        seed.deserialize(ValueReader(value)).map_err(|err| err.within(Segment::Field(name.to_owned())))
    }
}

//! The arguments of `create` with a snapshot or a container in place of an image.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error as _, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Create;

/// Fields of `create` that say what the image is.
const OF_IMAGE: [&str; 5] = ["image", "packages", "pull", "cache_bust", "repo_url"];

/// The one field that names an origin; its type describes the operation.
pub(crate) trait SourceField: JsonSchema + 'static {
    /// Its name.
    const FIELD: &'static str;
    /// What is read.
    type Value: for<'de> Deserialize<'de> + Send;
}

/// The arguments of `create` without those of its image, and one that names what takes its place.
pub(crate) struct SourceArgs<O: SourceField> {
    pub(crate) origin: O::Value,
    pub(crate) create: Create,
}

impl<'de, O: SourceField> Deserialize<'de> for SourceArgs<O> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<O>(PhantomData<O>);
        impl<'de, O: SourceField> Visitor<'de> for Read<O> {
            type Value = SourceArgs<O>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, from: M) -> Result<SourceArgs<O>, M::Error> {
                let mut origin = None;
                let rest = Apart { from, field: O::FIELD, value: &mut origin };
                let create = Create::deserialize(MapAccessDeserializer::new(rest))?;
                let origin = origin.ok_or_else(|| M::Error::missing_field(O::FIELD))?;
                Ok(SourceArgs { origin, create })
            }
        }
        from.deserialize_map(Read(PhantomData))
    }
}

/// Takes one field out of a map on its way. Paths of errors stay right, as they would not with `flatten`.
struct Apart<'a, M, V> {
    from: M,
    field: &'static str,
    value: &'a mut Option<V>,
}

impl<'de, M: MapAccess<'de>, V: Deserialize<'de>> MapAccess<'de> for Apart<'_, M, V> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, M::Error> {
        while let Some(key) = self.from.next_key::<String>()? {
            if key != self.field {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            *self.value = Some(self.from.next_value()?);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, M::Error> {
        self.from.next_value_seed(seed)
    }
}

impl<O: SourceField> JsonSchema for SourceArgs<O> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        O::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (mut of_create, own) = (Create::json_schema(generator), O::json_schema(generator));
        for key in ["description", "required"] {
            if let Some(value) = own.get(key) {
                of_create.insert(key.to_owned(), value.clone());
            }
        }
        let field = own.get("properties").and_then(|it| it.get(O::FIELD)).cloned();
        if let Some(fields) = of_create.get_mut("properties").and_then(|it| it.as_object_mut()) {
            fields.retain(|name, _| !OF_IMAGE.contains(&name.as_str()));
            fields.extend(field.map(|it| (O::FIELD.to_owned(), it)));
        }
        of_create
    }
}

//! What a container is made from in place of an image: a snapshot, or another container; and the arguments for that.

use std::fmt;
use std::marker::PhantomData;
use std::time::Instant;

use coracle_images::profile::Purpose;
use coracle_images::snapshot::Snapshot;
use coracle_lifecycle::MadeFrom;
use coracle_provision::Step;
use coracle_runtime::{ContainerName, ContainerPath, ImageRef, SnapshotName};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error as _, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::args::Create;
use super::image::{ImageSource, Imaged, Packages};
use super::person;
use crate::context::Context;
use crate::failure::Failure;
use crate::ops::snapshot::{Source, Taken, snapshots};
use crate::reach::Warning;
use crate::resolve::Request;

/// Fields of `create` that say what the image is.
const OF_IMAGE: [&str; 5] = ["image", "packages", "pull", "cache_bust", "repo_url"];

/// The one field that names an origin; its type describes the operation.
pub(crate) trait OriginField: JsonSchema + 'static {
    /// Its name.
    const FIELD: &'static str;
    /// What is read.
    type Value: for<'de> Deserialize<'de> + Send;
}

/// The arguments of `create` without those of its image, and one that names what takes its place.
pub(crate) struct WithOrigin<O: OriginField> {
    pub(crate) origin: O::Value,
    pub(crate) create: Create,
}

impl<'de, O: OriginField> Deserialize<'de> for WithOrigin<O> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<O>(PhantomData<O>);
        impl<'de, O: OriginField> Visitor<'de> for Read<O> {
            type Value = WithOrigin<O>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, from: M) -> Result<WithOrigin<O>, M::Error> {
                let mut origin = None;
                let rest = Apart { from, field: O::FIELD, value: &mut origin };
                let create = Create::deserialize(MapAccessDeserializer::new(rest))?;
                let origin = origin.ok_or_else(|| M::Error::missing_field(O::FIELD))?;
                Ok(WithOrigin { origin, create })
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

impl<O: OriginField> JsonSchema for WithOrigin<O> {
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

/// What a container is made from in place of an image.
pub(crate) enum Origin {
    /// What was kept before.
    Snapshot(Box<Snapshot>),
    /// A container as it is, by a snapshot of that name.
    Fork(Box<Source>, SnapshotName),
}

/// As far as what is decided depends on it.
#[derive(Clone, Debug)]
pub(crate) struct OriginSeen {
    pub(crate) made_from: MadeFrom,
    pub(crate) reference: ImageRef,
    pub(crate) purpose: Option<Purpose>,
    pub(crate) workdir: ContainerPath,
    pub(crate) mount_cwd: bool,
}

/// A snapshot to make a container from, and what is to be said of it.
pub(super) struct Had {
    pub(super) snapshot: Snapshot,
    pub(super) forked: Option<Forked>,
    pub(super) warnings: Vec<Warning>,
    begun: Instant,
}

/// What the answer of `fork` has besides.
#[derive(Clone, Debug)]
pub(super) struct Forked {
    pub(super) from: ContainerName,
    pub(super) not_included: Vec<String>,
}

impl Origin {
    /// What is known of it now.
    pub(super) fn seen(&self, cx: &Context) -> Result<OriginSeen, Failure> {
        Ok(match self {
            Self::Snapshot(it) => OriginSeen {
                made_from: MadeFrom { name: it.name.clone(), own: false },
                reference: it.reference.clone(),
                purpose: it.of.purpose.clone(),
                workdir: it.of.workdir.clone(),
                mount_cwd: it.of.mount_cwd,
            },
            Self::Fork(source, name) => OriginSeen {
                made_from: MadeFrom { name: name.clone(), own: true },
                reference: snapshots(cx, &cx.store()?)?.reference(name),
                purpose: source.record.purpose.as_deref().and_then(|it| Purpose::parse(it).ok()),
                workdir: source.record.workdir.clone(),
                mount_cwd: source.record.mount_cwd,
            },
        })
    }

    /// Has the snapshot. Of a fork it is made now, which is not to be abandoned half way.
    pub(super) async fn had(self, cx: &Context) -> Result<Had, Failure> {
        let begun = Instant::now();
        match self {
            Self::Snapshot(it) => Ok(Had { snapshot: *it, forked: None, warnings: Vec::new(), begun }),
            Self::Fork(source, name) => {
                let taken = source.keep(cx, (name, false)).await?;
                let Taken { snapshot, not_included, warnings } = taken;
                let from = source.record.name.clone();
                Ok(Had { snapshot, forked: Some(Forked { from, not_included }), warnings, begun })
            }
        }
    }
}

impl Had {
    /// The same as the image of a `create`.
    pub(super) fn imaged(&self, cx: &Context, request: &Request) -> Imaged {
        let it = &self.snapshot;
        let detail = match &self.forked {
            Some(forked) => format!("{}, made of `{}` as it is", it.reference, forked.from),
            None => format!("{} of `{}`, kept {:.0}", it.reference, it.of.container, it.created),
        };
        let probe = "the engine has the image under the id that the container is made from";
        Imaged {
            image: it.image.clone(),
            reference: it.reference.clone(),
            source: ImageSource::Snapshot,
            step: Step::success("image", detail, probe).took(self.begun.elapsed()),
            certs: person::certs(cx, &request.provisioning.certs),
            packages: Packages::Told(Step::skipped("packages", "a snapshot has what its container had")),
            warnings: self.warnings.clone(),
            recipe: coracle_images::Recipe::default(),
        }
    }
}

//! Items of a list that are either an object or a short text form.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::create::{MountArg, PortArg, RepoArg};
use crate::shorthand;

/// An item that has a short form.
pub(super) trait ShortForm: DeserializeOwned {
    /// The field that holds these items.
    const FIELD: &'static str;
    /// A description of an item, with an example.
    const EXPECTED: &'static str;
    /// Whether a plain number is a short form.
    const TAKES_NUMBER: bool = false;
}

impl ShortForm for PortArg {
    const FIELD: &'static str = "ports";
    const EXPECTED: &'static str =
        r#"a port such as `8080`, `"8080:80"` (host:container), `"53:53/udp"` or `{"container": 80, "host": 8080}`"#;
    const TAKES_NUMBER: bool = true;
}

impl ShortForm for MountArg {
    const FIELD: &'static str = "mounts";
    const EXPECTED: &'static str =
        r#"a mount such as `"../data:/data"`, `"../data:/data:ro"` or `{"host": "../data", "container": "/data"}`"#;
}

impl ShortForm for RepoArg {
    const FIELD: &'static str = "repos";
    const EXPECTED: &'static str = r#"a repository such as `"https://example.org/a.git"`, `"https://example.org/a.git=~/a"` or `{"url": "https://example.org/a.git"}`"#;
}

/// Deserialises a list whose items may be in short form: `#[serde(deserialize_with = "short_forms::list")]`.
pub(super) fn list<'de, D: Deserializer<'de>, T: ShortForm>(from: D) -> Result<Option<Vec<T>>, D::Error> {
    let items = Option::<Vec<Item<T>>>::deserialize(from)?;
    Ok(items.map(|it| it.into_iter().map(|Item(item)| item).collect()))
}

struct Item<T>(T);

impl<'de, T: ShortForm> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ReadItem(PhantomData)).map(Item)
    }
}

struct ReadItem<T>(PhantomData<T>);

impl<'de, T: ShortForm> Visitor<'de> for ReadItem<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_map<M: serde::de::MapAccess<'de>>(self, from: M) -> Result<T, M::Error> {
        T::deserialize(MapAccessDeserializer::new(from))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let object = shorthand::item(T::FIELD, text);
        let item = object.and_then(|it| serde_json::from_value(it).ok());
        item.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        if !T::TAKES_NUMBER {
            return Err(E::invalid_type(Unexpected::Unsigned(number), &self));
        }
        let object = shorthand::item(T::FIELD, &number.to_string());
        let item = object.and_then(|it| serde_json::from_value(it).ok());
        item.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::super::create::{MountArg, PortArg, RepoArg};

    #[derive(Debug, Deserialize, serde::Serialize)]
    struct Lists {
        #[serde(default, deserialize_with = "super::list")]
        ports: Option<Vec<PortArg>>,
        #[serde(default, deserialize_with = "super::list")]
        mounts: Option<Vec<MountArg>>,
        #[serde(default, deserialize_with = "super::list")]
        repos: Option<Vec<RepoArg>>,
    }

    fn read(value: Value) -> Result<Value, String> {
        serde_json::from_value::<Lists>(value).map(|it| json!(it)).map_err(|err| err.to_string())
    }

    #[test]
    fn a_short_form_equals_its_object() {
        let short = json!({
            "ports": [8080, "81", "8082:82", "53:53/udp"],
            "mounts": ["/a:/b", "/c:/d:ro"],
            "repos": ["https://example.org/a.git", "https://example.org/b.git=~/b"],
        });
        let long = json!({
            "ports": [{ "container": 8080 }, { "container": 81 }, { "container": 82, "host": 8082 },
                { "container": 53, "host": 53, "protocol": "udp" }],
            "mounts": [{ "host": "/a", "container": "/b" }, { "host": "/c", "container": "/d", "mode": "ro" }],
            "repos": [{ "url": "https://example.org/a.git" }, { "url": "https://example.org/b.git", "path": "~/b" }],
        });
        assert_eq!(read(short).unwrap(), read(long).unwrap());
        assert_eq!(read(json!({})).unwrap(), json!({ "ports": null, "mounts": null, "repos": null }));
    }

    #[test]
    fn an_invalid_item_is_answered_with_an_example() {
        for (field, item) in [
            ("ports", json!("web")),
            ("ports", json!(99_999)),
            ("ports", json!("80/sctp")),
            ("ports", json!(true)),
            ("mounts", json!("/a")),
            ("mounts", json!("/a:/b:rx")),
            ("mounts", json!(7)),
            ("repos", json!("")),
            ("repos", json!(7)),
        ] {
            let message = read(json!({ field: [item] })).unwrap_err();
            assert!(message.contains(" such as `"), "{field}: {message}");
        }
    }
}

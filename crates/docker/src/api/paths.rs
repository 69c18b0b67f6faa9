//! Builds paths of the API. Pure.
//!
//! Docker's paths name no version, so the engine's newest one answers. Podman's paths are those of its own API, whose
//! JSON matches its program's. They name the oldest supported version.

use coracle_runtime::LabelFilter;
use coracle_types::Handle;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::{ApiFault, ApiResult};
use crate::Dialect;

const LIBPOD: &str = "/v4.0.0/libpod";

/// Names of images have these.
const IN_A_NAME: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

/// A kind of object that engines keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Container,
    Image,
    Network,
    Volume,
}

pub(crate) fn inspect(dialect: Dialect, object: Object, name: &str) -> ApiResult<String> {
    let parts: Vec<&str> = if object == Object::Image { name.split('/').collect() } else { vec![name] };
    if parts.iter().any(|it| matches!(*it, "" | "." | "..")) {
        return Err(ApiFault::Unencodable);
    }
    let name = parts.iter().map(|it| utf8_percent_encode(it, IN_A_NAME).to_string()).collect::<Vec<_>>().join("/");
    let base = base(dialect, object);
    Ok(match (dialect, object) {
        (Dialect::Docker, Object::Network | Object::Volume) => format!("{base}/{name}"),
        _ => format!("{base}/{name}/json"),
    })
}

/// With the size of the container's own layer.
pub(crate) fn inspect_with_size(dialect: Dialect, id: &str) -> ApiResult<String> {
    inspect(dialect, Object::Container, id).map(|it| format!("{it}?size=true"))
}

pub(crate) fn list(dialect: Dialect, object: Object, filters: &Filters) -> String {
    let base = base(dialect, object);
    let base = match (dialect, object) {
        (Dialect::Docker, Object::Network | Object::Volume) => base,
        _ => format!("{base}/json"),
    };
    let all = if object == Object::Container { "all=true&" } else { "" };
    format!("{base}?{all}filters={}", utf8_percent_encode(&filters.0.to_string(), NON_ALPHANUMERIC))
}

/// Docker's path.
pub(crate) const INFO: &str = "/info";

/// Events of containers and networks from now on.
pub(crate) fn events(dialect: Dialect) -> String {
    let (base, stream) = if dialect == Dialect::Podman { (LIBPOD, "stream=true&") } else { ("", "") };
    let filters = r#"{"type":["container","network"]}"#;
    format!("{base}/events?{stream}filters={}", utf8_percent_encode(filters, NON_ALPHANUMERIC))
}

/// Both engines answer it without looking at what they hold.
pub(crate) fn ping() -> &'static str {
    "/_ping"
}

fn base(dialect: Dialect, object: Object) -> String {
    let api = if dialect == Dialect::Podman { LIBPOD } else { "" };
    let objects = match object {
        Object::Container => "containers",
        Object::Image => "images",
        Object::Network => "networks",
        Object::Volume => "volumes",
    };
    format!("{api}/{objects}")
}

/// Filters of a list, in the engine's notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filters(Value);

impl Filters {
    fn new(name: &str, values: impl Iterator<Item = String>) -> Self {
        let values: Vec<Value> = values.map(Value::String).collect();
        let filters: Map<_, _> =
            (!values.is_empty()).then(|| (name.to_owned(), Value::Array(values))).into_iter().collect();
        Self(Value::Object(filters))
    }

    pub(crate) fn none() -> Self {
        Self(Value::Object(Map::new()))
    }

    pub(crate) fn labels(filter: &LabelFilter) -> Self {
        let word = |(key, value): &(String, Option<String>)| match value {
            Some(value) => format!("{key}={value}"),
            None => key.clone(),
        };
        Self::new("label", filter.0.iter().map(word))
    }

    /// The first label only, for images, networks and volumes; the caller checks the others: Podman 4.3 finds no image
    /// by two labels.
    pub(crate) fn first_label(filter: &LabelFilter) -> Self {
        Self::labels(&LabelFilter(filter.0.iter().take(1).cloned().collect()))
    }

    pub(crate) fn handle(handle: &Handle) -> Self {
        let (name, value) = crate::args::handle_filter(handle);
        Self::new(name, std::iter::once(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_its_own_paths() {
        let of = |dialect, object| inspect(dialect, object, "a.b").unwrap();
        assert_eq!(of(Dialect::Docker, Object::Container), "/containers/a.b/json");
        assert_eq!(of(Dialect::Docker, Object::Network), "/networks/a.b");
        assert_eq!(of(Dialect::Podman, Object::Network), "/v4.0.0/libpod/networks/a.b/json");
        assert_eq!(of(Dialect::Podman, Object::Volume), "/v4.0.0/libpod/volumes/a.b/json");
        let image = inspect(Dialect::Docker, Object::Image, "localhost:5000/a/b:1@sha256:0").unwrap();
        assert_eq!(image, "/images/localhost:5000/a/b:1@sha256:0/json");
    }

    #[test]
    fn a_name_stays_within_its_part_of_the_path() {
        let network = |name| inspect(Dialect::Docker, Object::Network, name).ok();
        assert_eq!(network("a/../b?x#y").as_deref(), Some("/networks/a%2F..%2Fb%3Fx%23y"));
        assert_eq!(network("").or(network(".")).or(network("..")), None);
        assert!(inspect(Dialect::Docker, Object::Image, "a/../b").is_err());
        assert!(inspect(Dialect::Docker, Object::Image, "a//b").is_err());
    }

    #[test]
    fn labels_and_handles_become_filters() {
        let labels = Filters::labels(&LabelFilter(vec![("a".into(), Some("b=c".into())), ("d".into(), None)]));
        assert_eq!(labels.0.to_string(), r#"{"label":["a=b=c","d"]}"#);
        assert_eq!(Filters::labels(&LabelFilter::default()), Filters::none());
        let named = Filters::handle(&Handle::parse("a.b").unwrap());
        assert_eq!(named.0.to_string(), r#"{"name":["^/?a\\.b$"]}"#);
        let path = list(Dialect::Docker, Object::Container, &Filters::handle(&Handle::parse("0123456789ab").unwrap()));
        assert_eq!(path, "/containers/json?all=true&filters=%7B%22id%22%3A%5B%220123456789ab%22%5D%7D");
    }
}

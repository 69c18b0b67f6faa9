//! From an engine's JSON to our types. Pure.

pub(super) mod apple;
mod container;
mod image;
mod info;
mod network;
mod stack;

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(super) use self::container::{container_of, containers, wanted_ports, written_bytes};
pub(super) use self::image::images;
pub(super) use self::info::info;
pub(super) use self::network::networks;
pub(super) use self::stack::{escaped, listed_volumes, stack_model, volumes};
use super::Dialect;
use crate::{ContainerId, Error, ImageId, Result};

/// Ids, one a line.
pub(super) fn ids(output: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(output).split_whitespace().map(str::to_owned).collect()
}

/// Ids of a list that the API gave.
pub(super) fn listed_ids(json: &[u8]) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Row {
        #[serde(rename = "Id")]
        id: String,
    }
    Ok(array::<Row>("list", json)?.into_iter().map(|it| it.id).collect())
}

/// The id that `create` printed last.
pub(super) fn created(dialect: Dialect, output: &[u8]) -> Result<ContainerId> {
    let last = ids(output).pop().unwrap_or_default();
    match dialect {
        Dialect::Docker | Dialect::Podman => digits("create", &last),
        Dialect::Apple => ContainerId::parse(last).map_err(|err| unreadable("create", &err)),
    }
}

/// An id that the engine chose.
fn digits(verb: &'static str, text: &str) -> Result<ContainerId> {
    let id = ContainerId::parse(text).map_err(|err| unreadable(verb, &err))?;
    if id.is_digits() { Ok(id) } else { Err(unreadable(verb, &format_args!("`{id}` is not an id"))) }
}

/// The id that `commit` printed last.
pub(super) fn committed(output: &[u8]) -> Result<ImageId> {
    image_id(&ids(output).pop().unwrap_or_default())
}

fn array<T: DeserializeOwned>(verb: &'static str, json: &[u8]) -> Result<Vec<T>> {
    one(verb, json)
}

pub(super) fn one<T: DeserializeOwned>(verb: &'static str, json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(|err| unreadable(verb, &err))
}

fn unreadable(verb: &'static str, err: &dyn std::fmt::Display) -> Error {
    Error::Unreadable { verb, detail: err.to_string() }
}

/// Docker says `sha256:…`, Podman only the digits.
fn image_id(text: &str) -> Result<ImageId> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    ImageId::parse(format!("sha256:{digits}")).map_err(|err| unreadable("inspect", &err))
}

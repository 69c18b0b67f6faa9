//! Parses an engine's JSON into our types. Pure.

mod container;
mod image;
mod info;
mod network;
mod volume;

use serde::Deserialize;

pub(super) use self::container::{container_of, containers, wanted_ports, written_bytes};
pub(super) use self::image::images;
pub(super) use self::info::info;
pub(super) use self::network::networks;
pub(super) use self::volume::{listed_volumes, volumes};
pub(super) use coracle_engine_program::json::one;
use coracle_engine_program::json::{array, image_id, unreadable};
use coracle_types::{ContainerId, ImageId, Result};

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
pub(super) fn created(output: &[u8]) -> Result<ContainerId> {
    digits("create", &ids(output).pop().unwrap_or_default())
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

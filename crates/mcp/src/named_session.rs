//! The session that an HTTP client names in a header.

use coracle_types::ContainerName;
use hyper::http::request::Parts;

/// The header in which a client names its session.
const SESSION: &str = "coracle-session";

/// The header is not a valid session name.
#[derive(Debug)]
pub(super) struct InvalidName;

/// The session that a client names, if any.
pub(super) fn named_session(head: &Parts) -> Result<Option<ContainerName>, InvalidName> {
    let Some(value) = head.headers.get(SESSION) else { return Ok(None) };
    let name = value.to_str().map_err(|_| InvalidName)?;
    ContainerName::parse(name).map(Some).map_err(|_| InvalidName)
}

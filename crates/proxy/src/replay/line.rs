//! Requests of a replay, and the file that notes them.

use std::io;
use std::path::Path;

use coracle_types::failure::Failure;
use serde::{Deserialize, Serialize};

/// Maximum number of characters of a body in an answer and in the report.
pub(crate) const MAX_TEXT: usize = 512;

/// A request, as it is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayedRequest {
    /// The method.
    pub method: String,
    /// The whole address, with names of secrets instead of placeholders.
    pub url: String,
    /// The SHA-256 of the body.
    pub sha256: String,
    /// The length of the body.
    pub bytes: u64,
    /// The start of the body, if it is a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A request of a replay, and the recorded one that answers it or is nearest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplayLine {
    pub(crate) time: String,
    pub(crate) request: ReplayedRequest,
    /// The order of the recorded request that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) served: Option<u64>,
    /// The order of the nearest recorded request, if none answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nearest: Option<u64>,
    /// What differs from that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) differs: Vec<String>,
}

/// The start of a body, if it is a text and not empty.
pub(crate) fn text(body: Vec<u8>) -> Option<String> {
    let whole = match String::from_utf8(body) {
        Ok(whole) => whole,
        Err(err) => {
            // It may have been cut within a character.
            let valid = err.utf8_error().valid_up_to();
            let bytes = err.into_bytes();
            let is_cut = bytes.len() - valid < 4 && valid > 0;
            String::from_utf8(bytes[..valid].to_vec()).ok().filter(|_| is_cut)?
        }
    };
    (!whole.is_empty()).then(|| whole.chars().take(MAX_TEXT).collect())
}

/// Reads what was noted. An unfinished line at the end is left out.
pub(crate) fn lines(log: &Path) -> Result<Vec<ReplayLine>, Failure> {
    match std::fs::read(log) {
        Ok(bytes) => Ok(bytes.split(|it| *it == b'\n').filter_map(|it| serde_json::from_slice(it).ok()).collect()),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(err) => Err(Failure::internal(err)),
    }
}

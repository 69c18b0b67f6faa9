//! What a successful call wants to be known.

use coracle_lifecycle::Review;
use schemars::JsonSchema;
use serde::Serialize;

use crate::humanize::count;

/// Something that a successful call wants to be known (containers.md 1.8).
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(crate) struct Warning {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Warning {
    /// With its code and one sentence.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Somebody has to look before the host acts on it.
pub(crate) fn to_review(review: &Review) -> Option<Warning> {
    let places = review.findings.len();
    if places == 0 && !review.more {
        return None;
    }
    let more = if review.more { "; not everything could be checked, or there are more" } else { "" };
    let what = count(places as u64, "place", "places");
    let message = format!(
        "{what} in host directories changed that host programs act on, such as git's hooks: review before you use the \
         directories{more}"
    );
    Some(Warning::new("review", message))
}

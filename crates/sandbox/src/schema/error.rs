//! What is wrong with a schema, or with a value.

use crate::{Code, Failure};

/// Bytes of one fault that are reported.
const LONGEST: usize = 500;

pub(super) fn invalid(what: &str) -> Failure {
    Failure::new(Code::SchemaInvalid, format!("The schema is invalid: {what}."))
}

pub(super) fn short(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST)].to_owned()
}

//! Draft 2020-12, whole.

use jsonschema::{Draft, ValidationError};
use serde_json::Value;

use super::error::{invalid, short};
use crate::Result;

/// Faults of one value that are reported.
const MAX_FAULTS: usize = 10;

#[derive(Debug)]
pub(super) struct Validator(jsonschema::Validator);

impl Validator {
    pub(super) fn new(schema: &Value) -> Result<Self> {
        let built = jsonschema::options().with_draft(Draft::Draft202012).build(schema);
        built.map(Self).map_err(|err| invalid(&short(&err.to_string())))
    }

    pub(super) fn faults(&self, value: &Value) -> Vec<String> {
        let described = |err: ValidationError<'_>| short(&format!("at `{}`: {err}", err.instance_path()));
        self.0.iter_errors(value).take(MAX_FAULTS).map(described).collect()
    }
}

//! For builds without the feature `schemas`: every schema is refused, so that no result passes unchecked.

use serde_json::Value;

use crate::{Code, Failure, Result};

#[derive(Debug)]
pub(super) enum Validator {}

impl Validator {
    pub(super) fn new(_: &Value) -> Result<Self> {
        let message = "This build of Coracle cannot check JSON Schemas: it was compiled without the feature `schemas`.";
        Err(Failure::new(Code::SchemaUnsupported, message))
    }

    pub(super) fn faults(&self, _: &Value) -> Vec<String> {
        match *self {}
    }
}

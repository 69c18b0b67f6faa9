//! Fingerprints of the arguments of `create`, which reveal no value.

use std::collections::BTreeMap;

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use serde_json::Value;

use crate::requests::Create;

/// Keyed digests of the given fields. With plain hashes, a reader of the record could guess secrets and compare.
pub fn fingerprint(args: &Create, cx: &Context) -> Result<BTreeMap<String, String>, Failure> {
    let Value::Object(fields) = serde_json::to_value(args).map_err(Failure::internal)? else {
        return Ok(BTreeMap::new());
    };
    let store = cx.store()?;
    let given = fields.into_iter().filter(|(name, value)| !value.is_null() && name != "if_exists" && name != "name");
    Ok(given.map(|(name, value)| (name, store.signer().digest(value.to_string().as_bytes()))).collect())
}

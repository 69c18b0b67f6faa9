//! `preflight`: can containers be made here, and what to do if not.

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_prepare::preflight::{PreflightResponse, renewed};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// Check whether containers can be made here, and what to do if not. Reads and never changes anything.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Preflight {
    /// Look again, even if all was well a moment ago.
    #[expect(dead_code, reason = "only `create` uses a cached result; this call always looks")]
    #[schemars(extend("default" = false))]
    refresh: Option<bool>,
}

impl Operation for Preflight {
    const NAME: &'static str = "preflight";
    const EFFECT: Effect = Effect::ReadOnly;
    const DIAGNOSES: bool = true;
    const RESULT: fn() -> Value = result_schema::<PreflightResponse>;
    type Response = PreflightResponse;

    async fn run(self, cx: &Context) -> Result<PreflightResponse, Failure> {
        Ok(renewed(cx).await)
    }
}

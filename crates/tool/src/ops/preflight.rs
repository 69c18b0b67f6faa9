//! `preflight` (containers.md 3).

use coracle_runtime::{EngineInfo, EngineKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::failure::Failure;
use crate::op::Operation;

/// Check whether containers can be made here, and what to do if not.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Preflight {
    /// Look again, even if all was well a moment ago.
    #[serde(default)]
    #[expect(dead_code, reason = "verdicts are not kept yet")]
    refresh: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    ready: bool,
    runtime: Option<EngineKind>,
    engine: Option<EngineInfo>,
}

impl Operation for Preflight {
    const NAME: &'static str = "preflight";
    const ACTS: bool = false;
    const DIAGNOSES: bool = true;
    type Answer = Answer;

    async fn run(self, cx: &Context) -> Result<Answer, Failure> {
        let engine = cx.detect().await?.chosen.map(|(_, info)| info);
        Ok(Answer { ready: engine.is_some(), runtime: engine.as_ref().map(|it| it.kind), engine })
    }
}

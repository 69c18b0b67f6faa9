//! The block for a system prompt.

use coracle_workspace::Role;
use coracle_workspace::{Told, prompt as told, unavailable};
use serde_json::{Map, Value, json};

use super::plan::Plan;
use crate::context::Context;
use crate::ops::preflight::ensure_ready;

/// What a model is told of the session's workspace, or why it has none. Makes nothing.
pub(crate) async fn prompt(cx: &Context) -> Map<String, Value> {
    let text = match ensure_ready(cx).await {
        Ok(_) => {
            let plan = Plan::for_person(Role::Workspace, cx);
            let shell = cx.config.workspace.shell_names.first().map_or("shell_execute", String::as_str);
            told(&Told {
                uid: plan.user.uid,
                workdir: plan.workdir,
                shell,
                image: plan.image.as_str(),
                memory: cx.config.workspace.memory,
                cpus: cx.config.workspace.cpus,
            })
        }
        Err(failure) => unavailable(&failure.message, failure.hint.as_deref().unwrap_or_default()),
    };
    json!({ "success": true, "prompt": text }).as_object().cloned().unwrap_or_default()
}

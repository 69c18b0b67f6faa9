//! The refusal of a `devcontainer.json`, with the lines of the configuration that would allow it.

use coracle_context::context::Context;
use coracle_context::failure::{Failure, SETTINGS};
use coracle_devcontainer::features::ALLOWED_FEATURES;
use coracle_devcontainer::refusal::{DeniedProperty, refused as refused_file};
use serde_json::json;

/// Combines all refusals into one failure. For a refused feature, the hint has the complete new list of features.
pub(super) fn refused(cx: &Context, refusals: &[DeniedProperty]) -> Failure {
    let failure = Failure::from(refused_file(refusals));
    let refused = refusals.iter().filter(|refusal| refusal.setting == Some(ALLOWED_FEATURES));
    let names: Vec<_> = refused.filter_map(|refusal| refusal.property.strip_prefix("features.")).collect();
    if names.is_empty() {
        return failure;
    }
    let all: Vec<_> = cx.config.sandbox.features_allow.iter().map(String::as_str).chain(names).collect();
    let line = format!("features_allow = {}", json!(all));
    failure.hint_for(
        format!("only the user can allow these features, by `{line}` below `[sandbox]` in the configuration"),
        format!("if you trust them, write `{line}` below `[sandbox]` in {SETTINGS}: features run as root while the image is built"),
    )
}

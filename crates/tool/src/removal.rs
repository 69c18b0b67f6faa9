//! How containers are removed in this process.

use std::time::Duration;

use coracle_lifecycle::{Record, RemoveOptions, SAVE_TIME, SaveLimits, SavePolicy};
use coracle_runtime::{Problem, Refused};

use crate::context::{Context, Mouth};
use crate::failure::Failure;

/// How a container is removed in this process: what only it has is saved first, unless somebody who may says otherwise.
///
/// # Errors
/// `policy_denied` when what is unsaved may not be discarded.
pub(crate) fn removing<'a>(cx: &'a Context, discard: bool, force: bool) -> Result<RemoveOptions<'a>, Failure> {
    if discard && !cx.config.security.allow_discard && cx.call.mouth != Mouth::Cli {
        let message = "unsaved work may not be discarded".to_owned();
        let setting = Some("security.allow_discard");
        let problems = vec![Problem { rule: "discard", setting, value: "true".into(), message }];
        return Err(Refused { problems }.into());
    }
    let limits = SaveLimits { max_bytes: cx.config.lifecycle.save_max.0, time: SAVE_TIME };
    let saving = if discard { SavePolicy::Discard } else { SavePolicy::Keep(limits) };
    let grace = if force { Duration::ZERO } else { cx.config.exec.grace.0 };
    Ok(RemoveOptions { links: cx.links(), saving, grace, adopted_too: force && cx.call.mouth == Mouth::Cli })
}

/// When the reaper may take a container at the earliest.
pub(crate) fn expiry(cx: &Context, record: &Record) -> Option<String> {
    let at = coracle_lifecycle::expires_at(record, &cx.config.lifecycle.terms(), jiff::Timestamp::now());
    at.map(|it| it.to_string())
}

//! How containers are removed in this process.

use std::time::Duration;

use coracle_lifecycle::{Record, RemoveOptions, SAVE_TIME, SaveLimits, SavePolicy, SaveReport};
use coracle_runtime::{PolicyRefusal, Problem};

use crate::context::Context;
use crate::document::{StyledText, word};
use crate::failure::Failure;
use crate::humanize::{bytes, count};

/// Returns how a container is removed: its unsaved work is saved first, unless an authorised caller discards it.
///
/// # Errors
/// `policy_denied` if unsaved work may not be discarded.
pub fn removing<'a>(cx: &'a Context, discard: bool, force: bool) -> Result<RemoveOptions<'a>, Failure> {
    if discard && !cx.config.security.allow_discard && !cx.call.frontend.is_of_person() {
        let message = "unsaved work may not be discarded".to_owned();
        let setting = Some("security.allow_discard");
        let problems = vec![Problem { rule: "discard", setting, value: "true".into(), message }];
        return Err(PolicyRefusal { problems }.into());
    }
    let limits = SaveLimits { max_bytes: cx.config.lifecycle.save_max.0, time: SAVE_TIME };
    let saving = if discard { SavePolicy::Discard } else { SavePolicy::Keep(limits) };
    let grace = if force { Duration::ZERO } else { cx.config.exec.grace.0 };
    Ok(RemoveOptions { links: cx.links(), saving, grace, adopted_too: force && cx.call.frontend.is_of_person() })
}

/// Returns the earliest time at which the reaper may remove a container.
pub fn expiry(cx: &Context, record: &Record) -> Option<String> {
    let at = coracle_lifecycle::expires_at(record, &cx.config.lifecycle.terms(), jiff::Timestamp::now());
    at.map(|it| it.to_string())
}

/// Renders what a removal saved.
pub fn saved_lines(saved: &[SaveReport]) -> Vec<StyledText> {
    let item = |it: &SaveReport| {
        let kind = match word(it.kind).as_str() {
            "git" => "git work tree",
            "tree" => "whole work tree",
            _ => "files",
        };
        let size = format!("{}, {}", count(it.files, "file", "files"), bytes(it.bytes));
        let line = StyledText::from(format!("  saved {} ({kind}, {size})", it.path));
        match it.left_out {
            0 => line,
            some => line.plain("; ").doubtful(format!("{some} left out")).plain(", see its `manifest.json`"),
        }
    };
    let place =
        |it: &SaveReport| format!("  to {}; `coracle saved restore` puts it back", it.location.display()).into();
    saved.iter().map(item).chain(saved.first().map(place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_reports_what_it_saved() {
        let saved = SaveReport {
            path: coracle_types::ContainerPath::parse("/workspace/app").unwrap(),
            kind: coracle_lifecycle::SavedKind::Git,
            files: 2,
            bytes: 5000,
            location: "/s/web/1".into(),
            left_out: 1,
        };
        let lines: Vec<_> = saved_lines(&[saved]).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "  saved /workspace/app (git work tree, 2 files, 4.9 KiB); 1 left out, see its `manifest.json`",
                "  to /s/web/1; `coracle saved restore` puts it back"
            ]
        );
        assert!(saved_lines(&[]).is_empty());
    }
}

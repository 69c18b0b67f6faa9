//! Sandboxes.

use coracle::document::Column;
use coracle::humanize::count;
use serde_json::Value;

use super::table::{View, lines};
use super::{list_of, plain, text};
use coracle::humanize::ago;

/// What there is.
pub(super) fn list(answer: &Value, view: View) -> String {
    let rows = list_of(answer, "sandboxes");
    if rows.is_empty() {
        return "no sandboxes; `coracle worktree create` makes one".to_owned();
    }
    let row = |row: &Value| {
        let domain = text(row, "domain");
        let workflows = words(row, "workflows").join(", ");
        let of = if domain.is_empty() { workflows } else { format!("{domain}: {workflows}") };
        vec![text(row, "key"), text(row, "profile"), of, text(row, "state"), ago(&text(row, "used_at"), view.now)]
    };
    let columns = [
        Column::fixed("KEY"),
        Column::flexible("PROFILE").or_left_out(2),
        Column::flexible("WORKFLOWS"),
        Column::fixed("STATE"),
        Column::fixed("USED").or_left_out(1),
    ];
    lines(&columns, rows.iter().map(row).collect(), view).join("\n")
}

/// What went, and where its work is.
pub(super) fn removed(answer: &Value) -> String {
    let gone = count(list_of(answer, "removed").len() as u64, "sandbox", "sandboxes");
    let saved = words(answer, "saved").into_iter().map(|it| format!("  saved {it}"));
    std::iter::once(format!("{gone} removed")).chain(saved).collect::<Vec<_>>().join("\n")
}

/// What the person's git would act on.
pub(super) fn reviewed(answer: &Value) -> String {
    let directory = text(answer, "directory");
    let found = list_of(answer, "differences");
    match (directory.as_str(), found) {
        ("", _) => "its files are in its container, where your git does not go".to_owned(),
        (dir, []) => format!("{dir} is as it was written, where git acts on it"),
        (dir, found) => {
            let lines = found.iter().map(|it| format!("  {}", text(it, "message")));
            std::iter::once(format!("in {dir}")).chain(lines).collect::<Vec<_>>().join("\n")
        }
    }
}

fn words(of: &Value, key: &str) -> Vec<String> {
    list_of(of, key).iter().map(|it| plain(it.as_str().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{View, list, removed, reviewed};

    #[test]
    fn sandboxes_are_told_with_their_workflows() {
        let view = View::at("2026-01-02T00:00:00Z");
        let row = json!({ "key": "3f2a9c1d0b7e4a55", "profile": "default", "domain": null, "workflows": ["a", "b"],
            "state": "stopped", "image": "x", "used_at": "2026-01-01T00:00:00Z" });
        let told = list(&json!({ "sandboxes": [row] }), view);
        let mut lines = told.lines().map(|it| it.split_whitespace().collect::<Vec<_>>());
        assert_eq!(lines.next().unwrap(), ["KEY", "PROFILE", "WORKFLOWS", "STATE", "USED"]);
        assert_eq!(lines.next().unwrap()[..5], ["3f2a9c1d0b7e4a55", "default", "a,", "b", "stopped"]);
        let gone = json!({ "removed": ["k"], "saved": ["/state/saved/x"], "errors": [] });
        assert_eq!(removed(&gone), "1 sandbox removed\n  saved /state/saved/x");
    }

    #[test]
    fn a_review_says_where_it_looked() {
        let of = |directory: Option<&str>, found: &[&str]| {
            let found: Vec<_> = found.iter().map(|it| json!({ "code": "review", "message": it })).collect();
            reviewed(&json!({ "directory": directory, "differences": found }))
        };
        assert!(of(None, &[]).starts_with("its files are in its container"));
        assert_eq!(of(Some("/a/k"), &[]), "/a/k is as it was written, where git acts on it");
        assert_eq!(of(Some("/a/k"), &["`x` was not there"]), "in /a/k\n  `x` was not there");
    }
}

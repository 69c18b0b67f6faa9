//! Packages for snippets.

use coracle::document::Column;
use coracle::humanize::count;
use serde_json::Value;

use super::table::{View, lines};
use super::{list_of, text};

/// What there is.
pub(super) fn list(answer: &Value, view: View) -> String {
    let packages = list_of(answer, "packages");
    if packages.is_empty() {
        return "no packages for snippets; `coracle run packages add python six` adds one".to_owned();
    }
    let row = |it: &Value| ["asked", "language", "engine"].map(|field| text(it, field)).to_vec();
    let columns = [Column::flexible("PACKAGE"), Column::fixed("LANGUAGE"), Column::fixed("ENGINE")];
    lines(&columns, packages.iter().map(row).collect(), view).join("\n")
}

/// What came to it.
pub(super) fn added(answer: &Value) -> String {
    let names: Vec<String> = list_of(answer, "added").iter().map(|it| text(it, "asked")).collect();
    let all = list_of(answer, "packages").len();
    format!("added {}; snippets can use {}", names.join(", "), count(all as u64, "package", "packages"))
}

/// What went.
pub(super) fn cleared(answer: &Value) -> String {
    let removed = count(list_of(answer, "removed").len() as u64, "package", "packages");
    let left = if answer["in_use"] == true { "; containers in use keep them until their next call" } else { "" };
    format!("{removed} removed{left}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{View, added, cleared, list};

    #[test]
    fn packages_are_told_by_what_was_asked_for() {
        let view = View::at("2026-11-22T12:15:00Z");
        let six = json!({ "language": "python", "name": "six", "asked": "six==1", "engine": "docker" });
        assert_eq!(
            list(&json!({ "packages": [] }), view),
            "no packages for snippets; `coracle run packages add python six` adds one"
        );
        assert_eq!(list(&json!({ "packages": [six] }), view), "PACKAGE  LANGUAGE  ENGINE\nsix==1   python    docker");
        let answer = json!({ "added": [six], "packages": [six, six] });
        assert_eq!(added(&answer), "added six==1; snippets can use 2 packages");
        assert_eq!(cleared(&json!({ "removed": [six], "in_use": false })), "1 package removed");
    }
}

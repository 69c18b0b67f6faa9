//! Packages for snippets.

use comfy_table::{Table, presets};
use serde_json::Value;

use super::amounts::count;
use super::{list_of, text};

/// What there is.
pub(super) fn list(answer: &Value) -> String {
    let packages = list_of(answer, "packages");
    if packages.is_empty() {
        return "snippets of all sessions share no packages".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["PACKAGE", "LANGUAGE", "ENGINE"]);
    for it in packages {
        table.add_row(["asked", "language", "engine"].map(|field| text(it, field)));
    }
    table.lines().map(|it| it.trim().to_owned()).collect::<Vec<_>>().join("\n")
}

/// What came to it.
pub(super) fn added(answer: &Value) -> String {
    let names: Vec<String> = list_of(answer, "added").iter().map(|it| text(it, "asked")).collect();
    let all = list_of(answer, "packages").len();
    format!("snippets of all sessions have {}; {} in all", names.join(", "), count(all as u64, "package", "packages"))
}

/// What went.
pub(super) fn cleared(answer: &Value) -> String {
    let removed = count(list_of(answer, "removed").len() as u64, "package", "packages");
    let left =
        if answer["in_use"] == true { "; containers that have them keep them until their next call" } else { "" };
    format!("{removed} removed{left}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{added, cleared, list};

    #[test]
    fn packages_are_told_by_what_was_asked_for() {
        let six = json!({ "language": "python", "name": "six", "asked": "six==1", "engine": "docker" });
        assert_eq!(list(&json!({ "packages": [] })), "snippets of all sessions share no packages");
        assert_eq!(list(&json!({ "packages": [six] })), "PACKAGE  LANGUAGE  ENGINE\nsix==1   python    docker");
        let answer = json!({ "added": [six], "packages": [six, six] });
        assert_eq!(added(&answer), "snippets of all sessions have six==1; 2 packages in all");
        assert_eq!(cleared(&json!({ "removed": [six], "in_use": false })), "1 package removed");
    }
}

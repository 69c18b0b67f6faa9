//! What was kept of containers.

use coracle::humanize::bytes;
use serde_json::Value;

use super::humanize::ago;
use super::table::{View, fixed, flexible, lines};
use super::tables::used;
use super::{DIM, NAME, facts, list_of, plain, text};

/// A snapshot that was made.
pub(super) fn kept(answer: &Value) -> String {
    let name = text(answer, "snapshot");
    let mut lines = vec![format!("{NAME}{name}{NAME:#} has the files of {}", text(answer, "container"))];
    lines.extend(facts(&[
        ("image", text(answer, "image")),
        ("size", bytes(answer["size_bytes"].as_u64().unwrap_or(0))),
        ("next", format!("coracle restore {name}")),
    ]));
    lines.extend(left_out(answer));
    lines.join("\n")
}

/// What a snapshot or a fork has not.
pub(super) fn left_out(answer: &Value) -> Vec<String> {
    let without = list_of(answer, "not_included").iter().map(|it| plain(it.as_str().unwrap_or_default()));
    without.map(|it| format!("  {DIM}without{DIM:#} {it}")).collect()
}

/// The snapshots of `snapshots`.
pub(super) fn table(answer: &Value, view: View) -> String {
    let rows = list_of(answer, "snapshots");
    if rows.is_empty() {
        return "no snapshots; `coracle snapshot CONTAINER NAME` makes one".to_owned();
    }
    let row = |row: &Value| {
        let [name, container, purpose] = ["name", "container", "purpose"].map(|key| text(row, key));
        let size = bytes(row["size_bytes"].as_u64().unwrap_or(0));
        vec![name, container, purpose, size, ago(&text(row, "created"), view.now), used(row)]
    };
    let columns = [
        flexible("SNAPSHOT"),
        flexible("CONTAINER"),
        fixed("PURPOSE").or_left_out(1),
        fixed("SIZE"),
        fixed("CREATED").or_left_out(2),
        fixed("IN USE").or_left_out(3),
    ];
    lines(&columns, rows.iter().map(row).collect(), view).join("\n")
}

/// A snapshot that went.
pub(super) fn deleted(answer: &Value) -> String {
    let freed = bytes(answer["reclaimed_bytes"].as_u64().unwrap_or(0));
    format!("{NAME}{}{NAME:#} deleted, {freed} of its own", text(answer, "snapshot"))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use crate::render::bare;
    use crate::render::table::View;

    #[test]
    fn a_snapshot_says_what_it_has_and_what_not() {
        let answer = json!({ "snapshot": "base", "container": "web", "image": "coracle-snapshot:base",
            "size_bytes": 1_048_576, "not_included": ["/workspace (mounted)", "running processes"] });
        assert_snapshot!(bare(&super::kept(&answer)), @r"
        base has the files of web
          image  coracle-snapshot:base
          size   1 MiB
          next   coracle restore base
          without /workspace (mounted)
          without running processes
        ");
        let gone = json!({ "snapshot": "base", "reclaimed_bytes": 2048 });
        assert_snapshot!(bare(&super::deleted(&gone)), @"base deleted, 2 KiB of its own");
    }

    #[test]
    fn snapshots_are_a_table() {
        let view = View::at("2026-11-21T12:30:00Z");
        let answer = json!({ "snapshots": [
            { "name": "base", "container": "web", "purpose": "python", "size_bytes": 1_048_576,
              "created": "2026-11-21T10:00:00Z", "in_use": true },
            { "name": "fork-012345abcdef", "container": "web", "purpose": null, "size_bytes": 1024,
              "created": "2026-11-20T12:30:00Z", "in_use": false }] });
        assert_snapshot!(bare(&super::table(&answer, view)), @r"
        SNAPSHOT           CONTAINER  PURPOSE  SIZE   CREATED   IN USE
        base               web        python   1 MiB  2 h ago   yes
        fork-012345abcdef  web                 1 KiB  24 h ago  no
        ");
        assert!(super::table(&json!({ "snapshots": [] }), view).starts_with("no snapshots"));
    }
}

//! What was kept of containers.

use comfy_table::{Table, presets};
use jiff::Timestamp;
use serde_json::Value;

use super::amounts::{ago, bytes};
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
pub(super) fn table(answer: &Value, now: Timestamp) -> String {
    let rows = list_of(answer, "snapshots");
    if rows.is_empty() {
        return "no snapshots; `coracle snapshot CONTAINER NAME` makes one".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["SNAPSHOT", "OF", "PURPOSE", "SIZE", "MADE", "USED BY"]);
    for row in rows {
        let cell = |key: &str| text(row, key);
        let size = bytes(row["size_bytes"].as_u64().unwrap_or(0));
        let used = if row["in_use"] == true { "containers" } else { "nobody" };
        let made = ago(&cell("created"), now);
        table.add_row([cell("name"), cell("container"), cell("purpose"), size, made, used.to_owned()]);
    }
    table.lines().map(|it| it.trim().to_owned()).collect::<Vec<_>>().join("\n")
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
        let now = "2026-11-21T12:30:00Z".parse().unwrap();
        let answer = json!({ "snapshots": [
            { "name": "base", "container": "web", "purpose": "python", "size_bytes": 1_048_576,
              "created": "2026-11-21T10:00:00Z", "in_use": true },
            { "name": "fork-012345abcdef", "container": "web", "purpose": null, "size_bytes": 1024,
              "created": "2026-11-20T12:30:00Z", "in_use": false }] });
        assert_snapshot!(bare(&super::table(&answer, now)), @r"
        SNAPSHOT           OF   PURPOSE  SIZE   MADE      USED BY
        base               web  python   1 MiB  2 h ago   containers
        fork-012345abcdef  web           1 KiB  24 h ago  nobody
        ");
        assert!(super::table(&json!({ "snapshots": [] }), now).starts_with("no snapshots"));
    }
}

//! Work that was saved, and where it went.

use coracle::document::Column;
use coracle::humanize::{bytes, count};
use serde_json::Value;

use super::table::{self, View};
use super::{DOUBTFUL, NAME, list_of, plain, text};
use coracle::humanize::ago;

/// The saves of `saved list`.
pub(super) fn list(answer: &Value, view: View) -> String {
    let saves = list_of(answer, "saves");
    if saves.is_empty() {
        return "nothing is saved".to_owned();
    }
    let row = |save: &Value| {
        let name = format!("{}/{}", text(save, "name"), text(save, "time"));
        let paths: Vec<String> = list_of(save, "items").iter().map(|it| text(it, "path")).collect();
        let size = bytes(save["bytes"].as_u64().unwrap_or(0));
        vec![name, ago(&when(&text(save, "time")), view.now), size, paths.join(" ")]
    };
    let columns = [
        Column::fixed("SAVE"),
        Column::fixed("SAVED").or_left_out(1),
        Column::fixed("SIZE").or_left_out(2),
        Column::flexible("WHAT"),
    ];
    table::lines(&columns, saves.iter().map(row).collect(), view).join("\n")
}

/// The time that a directory is called by.
fn when(word: &str) -> String {
    let parsed = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%S%.fZ", word);
    let time = parsed.ok().and_then(|it| it.to_zoned(jiff::tz::TimeZone::UTC).ok());
    time.map_or_else(|| word.to_owned(), |it| it.timestamp().to_string())
}

/// What was put back, and what is left to do by hand.
pub(super) fn restored(answer: &Value) -> String {
    let items = list_of(answer, "restored");
    let mut lines = Vec::new();
    for item in items {
        let path = text(item, "path");
        let files = count(item["files"].as_u64().unwrap_or(0), "file", "files");
        lines.push(format!("{NAME}{path}{NAME:#} {files}"));
        match &item["commits"] {
            Value::String(word) if word == "fetched" => {
                lines.push("  commits are below refs/coracle/saved of the repository there".to_owned());
            }
            Value::String(word) if word == "checkedout" => {
                lines.push("  cloned, and its branch is checked out".to_owned());
            }
            Value::Object(bundle) => {
                let bundle = plain(bundle["bundle"].as_str().unwrap_or_default());
                lines.push(format!("  commits are in {bundle}: `git clone` it,"));
                lines.push(format!("  or in a clone `git fetch {bundle} '+refs/*:refs/coracle/saved/*'`"));
            }
            _ => {}
        }
        let staged = text(item, "staged");
        if !staged.is_empty() {
            lines.push(format!("  what was staged is the patch {staged}: `git apply --cached` takes it"));
        }
        for it in list_of(item, "skipped") {
            lines.push(format!("  {DOUBTFUL}left out{DOUBTFUL:#} `{}`: {}", text(it, "path"), text(it, "reason")));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use crate::render::bare;
    use crate::render::table::View;

    #[test]
    fn saves_are_a_table() {
        let save = json!({ "name": "web", "time": "20261122T101500.000Z", "bytes": 2048, "items": [{ "path": "/workspace/app" }, { "path": "/workspace" }] });
        assert_snapshot!(super::list(&json!({ "saves": [save] }), View::at("2026-11-22T12:15:00Z")), @r"
        SAVE                      SAVED    SIZE   WHAT
        web/20261122T101500.000Z  2 h ago  2 KiB  /workspace/app /workspace
        ");
        assert_snapshot!(super::list(&json!({ "saves": [] }), View::at("2026-11-22T12:15:00Z")), @"nothing is saved");
    }

    #[test]
    fn what_is_left_to_do_is_told() {
        let restored = json!({ "restored": [
            { "path": "/workspace/app", "files": 2, "commits": "fetched", "staged": null },
            { "path": "/d/app", "files": 0, "commits": { "bundle": "/d/app.saved.bundle" }, "staged": "/d/app.saved.staged.patch",
              "skipped": [{ "path": "x", "reason": "the link leads out of the tree" }] }] });
        assert_snapshot!(bare(&super::restored(&restored)), @r"
        /workspace/app 2 files
          commits are below refs/coracle/saved of the repository there
        /d/app 0 files
          commits are in /d/app.saved.bundle: `git clone` it,
          or in a clone `git fetch /d/app.saved.bundle '+refs/*:refs/coracle/saved/*'`
          what was staged is the patch /d/app.saved.staged.patch: `git apply --cached` takes it
          left out `x`: the link leads out of the tree
        ");
    }
}

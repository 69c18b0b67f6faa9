//! Lists as tables.

use comfy_table::{Table, presets};
use jiff::Timestamp;
use serde_json::Value;

use super::amounts::{ago, bytes};
use super::{BAD, DOUBTFUL, list_of, plain, text};

/// The containers of `list`.
pub(super) fn containers(answer: &Value, now: Timestamp) -> String {
    let rows = list_of(answer, "containers");
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["NAME", "STATUS", "IMAGE", "PORTS", "MADE", "SESSION"]);
    for row in rows {
        let cell = |key: &str| text(row, key);
        let made = ago(&cell("created"), now);
        table.add_row([cell("name"), cell("status"), cell("image"), cell("ports"), made, cell("session")]);
    }
    let mut lines: Vec<String> = match rows {
        [] => vec!["no containers; `coracle create` makes one".to_owned()],
        _ => table.lines().map(|it| it.trim().to_owned()).collect(),
    };
    for name in list_of(answer, "unverified") {
        let name = plain(name.as_str().unwrap_or_default());
        lines.push(format!(
            "{DOUBTFUL}unverified{DOUBTFUL:#} {name}: it carries our label without proof; nothing acts on it"
        ));
    }
    lines.join("\n")
}

/// The networks of `networks`.
pub(super) fn networks(answer: &Value, now: Timestamp) -> String {
    let rows = list_of(answer, "networks");
    if rows.is_empty() {
        return "no networks; `coracle create-network NAME` makes one".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["NETWORK", "WAY OUT", "CONTAINERS", "MADE", "OF"]);
    for row in rows {
        let members: Vec<_> =
            list_of(row, "containers").iter().map(|it| plain(it.as_str().unwrap_or_default())).collect();
        let way_out = if row["internal"] == true { "no" } else { "yes" }.to_owned();
        let project = text(row, "compose_project");
        let of = if project.is_empty() { text(row, "session") } else { format!("stack {project}") };
        table.add_row([text(row, "name"), way_out, members.join(", "), ago(&text(row, "created"), now), of]);
    }
    table.lines().map(|it| it.trim().to_owned()).collect::<Vec<_>>().join("\n")
}

/// What `prune` removed, or would.
pub(super) fn pruned(answer: &Value) -> String {
    let (dry_run, rows) = (answer["dry_run"] == true, list_of(answer, "items"));
    let kept = list_of(answer, "kept").len();
    let tail = if kept == 0 { String::new() } else { format!("; {kept} kept, `--json` says why") };
    if rows.is_empty() {
        return format!("nothing to prune{tail}");
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["KIND", "NAME", "SIZE", "WHY"]);
    for row in rows {
        let size = row["bytes"].as_u64().map(bytes).unwrap_or_default();
        let failed = text(row, "error");
        let why = if failed.is_empty() { text(row, "reason") } else { format!("{BAD}stays{BAD:#}: {failed}") };
        table.add_row([text(row, "kind"), text(row, "name"), size, why]);
    }
    let mut lines: Vec<_> = table.lines().map(|it| it.trim().to_owned()).collect();
    let freed = bytes(answer["reclaimed_bytes"].as_u64().unwrap_or(0));
    lines.push(match dry_run {
        true => format!("{freed} would be freed{tail}; `--dry-run=false` removes it"),
        false => format!("{freed} freed{tail}"),
    });
    lines.join("\n")
}

/// The images of `images`.
pub(super) fn images(answer: &Value, now: Timestamp) -> String {
    let rows = list_of(answer, "images");
    if rows.is_empty() {
        return "no images are kept; `coracle create --purpose python` makes one".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["IMAGE", "PURPOSE", "BASE", "SIZE", "MADE", "USED BY"]);
    for row in rows {
        let cell = |key: &str| text(row, key);
        let size = bytes(row["size_bytes"].as_u64().unwrap_or(0));
        let used = if row["in_use"] == true { "containers" } else { "nobody" };
        table.add_row([
            cell("image"),
            cell("purpose"),
            cell("base"),
            size,
            ago(&cell("created"), now),
            used.to_owned(),
        ]);
    }
    table.lines().map(|it| it.trim().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use crate::render::bare;

    fn check(answer: &Value) -> String {
        bare(&super::containers(answer, "2026-11-21T12:30:00Z".parse().unwrap()))
    }

    #[test]
    fn containers_are_a_table() {
        let row = |name: &str, status: &str| {
            json!({ "name": name, "status": status, "image": "ubuntu:24.04", "ports": "",
            "created": "2026-11-21T10:00:00.000Z", "session": "default" })
        };
        let answer = json!({ "containers": [row("web", "running"), row("db", "exited")], "unverified": ["x"] });
        assert_snapshot!(check(&answer), @r"
        NAME  STATUS   IMAGE         PORTS  MADE     SESSION
        web   running  ubuntu:24.04         2 h ago  default
        db    exited   ubuntu:24.04         2 h ago  default
        unverified x: it carries our label without proof; nothing acts on it
        ");
        assert_snapshot!(check(&json!({ "containers": [] })), @"no containers; `coracle create` makes one");
    }

    #[test]
    fn networks_are_a_table() {
        let answer = json!({ "networks": [
            { "name": "team", "internal": false, "containers": ["web", "db"], "created": "2026-11-21T10:00:00Z",
              "session": "default", "compose_project": null },
            { "name": "shop_default", "internal": true, "containers": [], "created": "2026-11-21T12:29:30Z",
              "session": null, "compose_project": "shop" }] });
        assert_snapshot!(bare(&super::networks(&answer, "2026-11-21T12:30:00Z".parse().unwrap())), @r"
        NETWORK       WAY OUT  CONTAINERS  MADE      OF
        team          yes      web, db     2 h ago   default
        shop_default  no                   just now  stack shop
        ");
        let none = json!({ "networks": [] });
        assert_snapshot!(bare(&super::networks(&none, Timestamp::now())), @"no networks; `coracle create-network NAME` makes one");
    }

    #[test]
    fn what_goes_is_a_table_with_reasons() {
        let item = |kind: &str, bytes: Option<u64>, error: Option<&str>| json!({ "kind": kind, "name": "x", "reason": "nobody needs it", "bytes": bytes, "error": error });
        let items = [item("containers", Some(1 << 20), None), item("networks", None, Some("it is used"))];
        let answer = json!({ "dry_run": true, "items": items, "reclaimed_bytes": 1 << 20, "kept": [{}] });
        assert_snapshot!(bare(&super::pruned(&answer)), @r"
        KIND        NAME  SIZE   WHY
        containers  x     1 MiB  nobody needs it
        networks    x            stays: it is used
        1 MiB would be freed; 1 kept, `--json` says why; `--dry-run=false` removes it
        ");
        assert_snapshot!(bare(&super::pruned(&json!({ "dry_run": true, "items": [], "kept": [] }))), @"nothing to prune");
    }

    #[test]
    fn kept_images_are_a_table() {
        let answer = json!({ "images": [
            { "image": "coracle-cache:python-0123456789abcdef", "purpose": "python", "base": "python:3.12-slim",
              "size_bytes": 512_000_000, "created": "2026-11-21T10:00:00Z", "in_use": true },
            { "image": "coracle-base:debian-bookworm-amd64", "purpose": null, "base": null, "size_bytes": 251_000_000,
              "created": "2026-11-20T12:30:00Z", "in_use": false }] });
        assert_snapshot!(bare(&super::images(&answer, "2026-11-21T12:30:00Z".parse().unwrap())), @r"
        IMAGE                                  PURPOSE  BASE              SIZE       MADE      USED BY
        coracle-cache:python-0123456789abcdef  python   python:3.12-slim  488.3 MiB  2 h ago   containers
        coracle-base:debian-bookworm-amd64                                239.4 MiB  24 h ago  nobody
        ");
    }
}

//! Lists as tables.

use coracle::humanize::{bytes, count};
use serde_json::Value;

use super::humanize::ago;
use super::table::{Column, View, fixed, flexible, lines};
use super::{BAD, DOUBTFUL, list_of, plain, text};

/// Unverified containers that are named.
const NAMED: usize = 3;

const CONTAINERS: [Column; 8] = [
    fixed("NAME"),
    fixed("STATUS"),
    flexible("IMAGE"),
    flexible("PORTS").or_left_out(1),
    flexible("SERVICES").or_left_out(2),
    fixed("CREATED").or_left_out(3),
    fixed("ENGINE").or_left_out(4),
    flexible("SESSION").or_left_out(5),
];

/// The containers of `list`.
pub(super) fn containers(answer: &Value, view: View) -> String {
    let row = |row: &Value| {
        let cell = |key: &str| text(row, key);
        let services: Vec<_> =
            list_of(row, "compose_services").iter().map(|it| plain(it.as_str().unwrap_or_default())).collect();
        let created = ago(&cell("created"), view.now);
        let [name, status, image, ports, engine, session] =
            ["name", "status", "image", "ports", "engine", "session"].map(cell);
        vec![name, status, image, ports, services.join(", "), created, engine, session]
    };
    let mut all: Vec<String> = match list_of(answer, "containers") {
        [] => vec!["no containers; `coracle create` makes one".to_owned()],
        rows => lines(&CONTAINERS, rows.iter().map(row).collect(), view),
    };
    all.extend(unverified(list_of(answer, "unverified")));
    all.join("\n")
}

/// One line for all of them, and where it is explained.
fn unverified(names: &[Value]) -> Option<String> {
    let more = names.len().saturating_sub(NAMED);
    let shown: Vec<_> = names.iter().take(NAMED).map(|it| plain(it.as_str().unwrap_or_default())).collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let what = count(names.len() as u64, "container", "containers");
    (!names.is_empty()).then(|| {
        format!("{DOUBTFUL}unverified{DOUBTFUL:#} {what}: {}{more}; `coracle list --help` explains", shown.join(", "))
    })
}

/// The networks of `networks`.
pub(super) fn networks(answer: &Value, view: View) -> String {
    let rows = list_of(answer, "networks");
    if rows.is_empty() {
        return "no networks; `coracle create-network NAME` makes one".to_owned();
    }
    let row = |row: &Value| {
        let members: Vec<_> =
            list_of(row, "containers").iter().map(|it| plain(it.as_str().unwrap_or_default())).collect();
        let internet = if row["internal"] == true { "no" } else { "yes" }.to_owned();
        let project = text(row, "compose_project");
        let owner = if project.is_empty() { text(row, "session") } else { format!("stack {project}") };
        vec![text(row, "name"), internet, members.join(", "), ago(&text(row, "created"), view.now), owner]
    };
    let columns = [
        flexible("NETWORK"),
        fixed("INTERNET"),
        flexible("CONTAINERS"),
        fixed("CREATED").or_left_out(1),
        flexible("OWNER").or_left_out(2),
    ];
    lines(&columns, rows.iter().map(row).collect(), view).join("\n")
}

/// What `prune` removed, or would.
pub(super) fn pruned(answer: &Value, view: View) -> String {
    let (dry_run, rows) = (answer["dry_run"] == true, list_of(answer, "items"));
    let kept = list_of(answer, "kept").len();
    let tail = if kept == 0 { String::new() } else { format!("; {kept} kept, `--json` says why") };
    if rows.is_empty() {
        return format!("nothing to prune{tail}");
    }
    let row = |row: &Value| {
        let size = row["bytes"].as_u64().map(bytes).unwrap_or_default();
        let failed = text(row, "error");
        let why = if failed.is_empty() { text(row, "reason") } else { format!("{BAD}stays{BAD:#}: {failed}") };
        vec![text(row, "kind"), text(row, "name"), size, why]
    };
    let columns = [fixed("KIND"), flexible("NAME"), fixed("SIZE").or_left_out(1), flexible("WHY")];
    let mut all = lines(&columns, rows.iter().map(row).collect(), view);
    let freed = bytes(answer["reclaimed_bytes"].as_u64().unwrap_or(0));
    all.push(match dry_run {
        true => format!("{freed} would be freed{tail}; `--dry-run=false` removes it"),
        false => format!("{freed} freed{tail}"),
    });
    all.join("\n")
}

/// The images of `images`.
pub(super) fn images(answer: &Value, view: View) -> String {
    let rows = list_of(answer, "images");
    if rows.is_empty() {
        return "no images are kept; `coracle create --purpose python` makes one".to_owned();
    }
    let row = |row: &Value| {
        let [image, purpose, base] = ["image", "purpose", "base"].map(|key| text(row, key));
        let size = bytes(row["size_bytes"].as_u64().unwrap_or(0));
        vec![image, purpose, base, size, ago(&text(row, "created"), view.now), used(row)]
    };
    let columns = [
        flexible("IMAGE"),
        fixed("PURPOSE").or_left_out(2),
        flexible("BASE").or_left_out(1),
        fixed("SIZE"),
        fixed("CREATED").or_left_out(3),
        fixed("IN USE").or_left_out(4),
    ];
    lines(&columns, rows.iter().map(row).collect(), view).join("\n")
}

/// Whether containers need it.
pub(super) fn used(row: &Value) -> String {
    if row["in_use"] == true { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::{Value, json};

    use crate::render::bare;
    use crate::render::table::View;

    fn view() -> View {
        View::at("2026-11-21T12:30:00Z")
    }

    fn check(answer: &Value) -> String {
        bare(&super::containers(answer, view()))
    }

    #[test]
    fn containers_are_a_table() {
        let row = |name: &str, status: &str| {
            json!({ "name": name, "status": status, "image": "ubuntu:24.04", "ports": "",
            "created": "2026-11-21T10:00:00.000Z", "session": "default", "engine": "docker", "compose_services": ["db", "cache"] })
        };
        let answer = json!({ "containers": [row("web", "running"), row("db", "exited")], "unverified": ["x"] });
        assert_snapshot!(check(&answer), @r"
        NAME  STATUS   IMAGE         PORTS  SERVICES   CREATED  ENGINE  SESSION
        web   running  ubuntu:24.04         db, cache  2 h ago  docker  default
        db    exited   ubuntu:24.04         db, cache  2 h ago  docker  default
        unverified 1 container: x; `coracle list --help` explains
        ");
        assert_snapshot!(check(&json!({ "containers": [] })), @"no containers; `coracle create` makes one");
    }

    #[test]
    fn unverified_containers_are_one_line() {
        let names: Vec<_> = (1..=5).map(|it| format!("x{it}")).collect();
        let told = check(&json!({ "containers": [], "unverified": names }));
        assert_eq!(told.lines().count(), 2);
        assert_snapshot!(told.lines().last().unwrap(), @"unverified 5 containers: x1, x2, x3 and 2 more; `coracle list --help` explains");
    }

    #[test]
    fn networks_are_a_table() {
        let answer = json!({ "networks": [
            { "name": "team", "internal": false, "containers": ["web", "db"], "created": "2026-11-21T10:00:00Z",
              "session": "default", "compose_project": null },
            { "name": "shop_default", "internal": true, "containers": [], "created": "2026-11-21T12:29:30Z",
              "session": null, "compose_project": "shop" }] });
        assert_snapshot!(bare(&super::networks(&answer, view())), @r"
        NETWORK       INTERNET  CONTAINERS  CREATED   OWNER
        team          yes       web, db     2 h ago   default
        shop_default  no                    just now  stack shop
        ");
        let none = json!({ "networks": [] });
        assert_snapshot!(bare(&super::networks(&none, view())), @"no networks; `coracle create-network NAME` makes one");
    }

    #[test]
    fn what_goes_is_a_table_with_reasons() {
        let item = |kind: &str, bytes: Option<u64>, error: Option<&str>| json!({ "kind": kind, "name": "x", "reason": "nobody needs it", "bytes": bytes, "error": error });
        let items = [item("containers", Some(1 << 20), None), item("networks", None, Some("it is used"))];
        let answer = json!({ "dry_run": true, "items": items, "reclaimed_bytes": 1 << 20, "kept": [{}] });
        assert_snapshot!(bare(&super::pruned(&answer, view())), @r"
        KIND        NAME  SIZE   WHY
        containers  x     1 MiB  nobody needs it
        networks    x            stays: it is used
        1 MiB would be freed; 1 kept, `--json` says why; `--dry-run=false` removes it
        ");
        assert_snapshot!(bare(&super::pruned(&json!({ "dry_run": true, "items": [], "kept": [] }), view())), @"nothing to prune");
    }

    #[test]
    fn kept_images_are_a_table() {
        let answer = json!({ "images": [
            { "image": "coracle-cache:python-0123456789abcdef", "purpose": "python", "base": "python:3.12-slim",
              "size_bytes": 512_000_000, "created": "2026-11-21T10:00:00Z", "in_use": true },
            { "image": "coracle-base:debian-bookworm-amd64", "purpose": null, "base": null, "size_bytes": 251_000_000,
              "created": "2026-11-20T12:30:00Z", "in_use": false }] });
        assert_snapshot!(bare(&super::images(&answer, view())), @r"
        IMAGE                                  PURPOSE  BASE              SIZE       CREATED   IN USE
        coracle-cache:python-0123456789abcdef  python   python:3.12-slim  488.3 MiB  2 h ago   yes
        coracle-base:debian-bookworm-amd64                                239.4 MiB  24 h ago  no
        ");
    }
}

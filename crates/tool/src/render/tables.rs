//! Lists as tables.

use comfy_table::{Table, presets};
use jiff::Timestamp;
use serde_json::Value;

use super::amounts::{ago, bytes};
use super::{DOUBTFUL, list_of, plain, text};

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

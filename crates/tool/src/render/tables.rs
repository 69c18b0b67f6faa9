//! Lists as tables.

use comfy_table::{Table, presets};
use jiff::Timestamp;
use serde_json::Value;

use super::amounts::ago;
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
}

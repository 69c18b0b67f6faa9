//! Lists as tables.

use comfy_table::{Table, presets};
use serde_json::Value;

use super::{DOUBTFUL, list_of, plain, text};

/// The containers of `list`.
pub(super) fn containers(answer: &Value) -> String {
    let rows = list_of(answer, "containers");
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["NAME", "STATUS", "IMAGE", "PORTS", "CREATED", "SESSION"]);
    for row in rows {
        let cell = |key: &str| text(row, key);
        let created = cell("created").chars().take(16).collect::<String>().replace('T', " ");
        table.add_row([cell("name"), cell("status"), cell("image"), cell("ports"), created, cell("session")]);
    }
    let mut lines: Vec<String> = match rows {
        [] => vec!["no containers".to_owned()],
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

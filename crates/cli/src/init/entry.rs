//! The entry of our MCP server among those of a client.
//!
//! **Invariant:** everything else of the file stays, comments and order too; a file of which that cannot be said is not
//! changed.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde_json::Value;

use super::clients::{ClientFormat, McpClient};

/// The name of our server.
const NAME: &str = "coracle";

/// What becomes of a client's file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryPlan {
    /// Our entry is there already.
    Present,
    /// The new text.
    Write(String),
    /// Why it is left alone.
    Refuse(String),
}

/// The lines that a person adds by hand: those of an empty file.
pub(super) fn snippet(client: &McpClient, program: &str) -> String {
    match plan(client, "", program) {
        EntryPlan::Write(text) => text.trim_end().to_owned(),
        EntryPlan::Present | EntryPlan::Refuse(_) => String::new(),
    }
}

/// What becomes of a file with that text.
pub(super) fn plan(client: &McpClient, before: &str, program: &str) -> EntryPlan {
    let planned = match client.format {
        ClientFormat::Json { servers, has_type } => in_json(before, servers, &json_entry(has_type, program)),
        ClientFormat::Toml { servers } => in_toml(before, servers, program),
    };
    match planned {
        Ok(Some(text)) => EntryPlan::Write(text),
        Ok(None) => EntryPlan::Present,
        Err(why) => EntryPlan::Refuse(why),
    }
}

/// In the order in which people write it.
fn json_entry(has_type: bool, program: &str) -> CstInputValue {
    let text = |it: &str| CstInputValue::String(it.to_owned());
    let kind = has_type.then(|| ("type".to_owned(), text("stdio")));
    let args = ("args".to_owned(), CstInputValue::Array(vec![text("mcp")]));
    CstInputValue::Object(kind.into_iter().chain([("command".to_owned(), text(program)), args]).collect())
}

fn in_json(before: &str, servers: &str, entry: &CstInputValue) -> Result<Option<String>, String> {
    let text = if before.trim().is_empty() { "{}\n" } else { before };
    let root = parse(text)?;
    let no_object = |what: &str| format!("{what} is no object");
    let object = root.object_value_or_create().ok_or_else(|| no_object("the file"))?;
    let all = object.object_value_or_create(servers).ok_or_else(|| no_object(&format!("`{servers}`")))?;
    let present = all.get(NAME).map(|it| it.value().and_then(|it| it.to_serde_value()));
    match all.get(NAME) {
        Some(property) => property.set_value(entry.clone()),
        None => drop(all.append(NAME, entry.clone())),
    }
    let after = root.to_string();
    let (old, new) = (value_of(text)?, value_of(&after)?);
    if present.is_some_and(|it| it.as_ref() == new.get(servers).and_then(|it| it.get(NAME))) {
        return Ok(None);
    }
    match without_ours(old, servers) == without_ours(new, servers) {
        true => Ok(Some(after)),
        false => Err("what else it says would not stay".to_owned()),
    }
}

fn parse(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|err| format!("it cannot be read: {err}"))
}

fn value_of(text: &str) -> Result<Value, String> {
    let value = parse(text)?.value().and_then(|it| it.to_serde_value());
    value.ok_or_else(|| "it cannot be read".to_owned())
}

/// The file without our entry, and without the object that only our entry needs.
fn without_ours(mut file: Value, servers: &str) -> Value {
    if let Some(all) = file.get_mut(servers).and_then(Value::as_object_mut) {
        all.remove(NAME);
        if all.is_empty()
            && let Some(file) = file.as_object_mut()
        {
            file.remove(servers);
        }
    }
    file
}

fn toml_entry(servers: &str, program: &str) -> String {
    format!("[{servers}.{NAME}]\ncommand = {}\nargs = [\"mcp\"]\n", toml::Value::from(program))
}

/// A table of its own at the end, so that nothing before it changes.
fn in_toml(before: &str, servers: &str, program: &str) -> Result<Option<String>, String> {
    let read =
        |text: &str| toml::from_str::<toml::Table>(text).map_err(|err| format!("it cannot be read: {}", err.message()));
    let ours = |table: &toml::Table| table.get(servers).and_then(|it| it.get(NAME)).cloned();
    let (old, entry) = (read(before)?, toml_entry(servers, program));
    if let Some(present) = ours(&old) {
        return match Some(&present) == ours(&read(&entry)?).as_ref() {
            true => Ok(None),
            false => Err(format!("`{servers}.{NAME}` is there and says something else")),
        };
    }
    let gap = if before.is_empty() || before.ends_with("\n\n") {
        ""
    } else if before.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    let after = format!("{before}{gap}{entry}");
    read(&after).map(|_| Some(after)).map_err(|_| format!("`{servers}` cannot get another entry by a table of its own"))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::super::clients::ALL;
    use super::*;

    fn planned(client: &str, before: &str) -> EntryPlan {
        plan(ALL.iter().find(|it| it.name == client).unwrap(), before, "/usr/bin/coracle")
    }

    fn written(client: &str, before: &str) -> String {
        match planned(client, before) {
            EntryPlan::Write(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_new_file_has_our_entry_alone_and_a_second_time_nothing_changes() {
        for client in ALL {
            let text = written(client.name, "");
            assert_eq!(planned(client.name, &text), EntryPlan::Present, "{}: {text}", client.name);
        }
        assert_snapshot!(written("vscode", ""), @r#"
        {
          "servers": {
            "coracle": {
              "type": "stdio",
              "command": "/usr/bin/coracle",
              "args": ["mcp"]
            }
          }
        }
        "#);
    }

    #[test]
    fn the_page_of_clients_has_the_entry_and_the_file_of_each() {
        let page = include_str!("../../docs/mcp-clients.md");
        for client in ALL {
            let entry = snippet(client, "coracle");
            assert!(page.contains(&format!("\n{entry}\n```")), "{}: {entry}", client.name);
            let host = coracle::Host::below(std::path::Path::new("/home/kim"));
            let file = client.file(&host);
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(page.contains(client.title.trim_end_matches(" CLI")) && page.contains(name), "{}", file.display());
        }
    }

    #[test]
    fn comments_and_other_servers_stay() {
        let zed = "{\n  // mine\n  \"theme\": \"One\", // dark\n  \"context_servers\": {\n    \"other\": { \"command\": \"x\" },\n  },\n}\n";
        assert_snapshot!(written("zed", zed), @r#"
        {
          // mine
          "theme": "One", // dark
          "context_servers": {
            "other": { "command": "x" },
            "coracle": {
              "command": "/usr/bin/coracle",
              "args": ["mcp"],
            },
          },
        }
        "#);
        let codex = "model = \"o3\" # best\n\n[mcp_servers.other]\ncommand = \"x\"\n";
        assert_snapshot!(written("codex", codex), @r#"
        model = "o3" # best

        [mcp_servers.other]
        command = "x"

        [mcp_servers.coracle]
        command = "/usr/bin/coracle"
        args = ["mcp"]
        "#);
    }

    #[test]
    fn an_entry_with_another_program_is_set_and_a_strange_file_left_alone() {
        let old = "{\"mcpServers\": {\"coracle\": {\"command\": \"/old\"}, \"b\": {}}}";
        let text = written("cursor", old);
        assert!(text.contains("/usr/bin/coracle") && !text.contains("/old") && text.contains("\"b\": {}"), "{text}");
        for (client, text) in [
            ("cursor", "[]"),
            ("cursor", "{ \"mcpServers\": 3 }"),
            ("cursor", "{ nothing"),
            ("codex", "x ="),
            ("codex", "mcp_servers = {}\n"),
            ("codex", "[mcp_servers.coracle]\ncommand = \"/old\"\n"),
        ] {
            assert!(matches!(planned(client, text), EntryPlan::Refuse(_)), "{client}: {text}");
        }
    }
}

//! The entry of Coracle's MCP server in a client's file.
//!
//! **Invariant:** the rest of the file stays, including comments and order; if that cannot be guaranteed, the file is
//! not changed. In an existing entry, only what prevents the start of this program is changed.

use std::path::Path;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::Value;

use super::super::program_path::NAME;
use super::clients::{ClientFormat, McpClient};

/// The argument that starts the server.
const SUBCOMMAND: &str = "mcp";

/// What to do with a client's file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryPlan {
    /// The entry exists.
    Present,
    /// Write this text.
    Write(String),
    /// Why it is not changed.
    Refuse(String),
    /// The entry exists, and the user must change this.
    ChangeByHand(String),
}

/// The program that entries start.
#[derive(Clone, Copy)]
pub(super) struct ServerProgram<'a> {
    pub(super) path: &'a str,
    /// Whether a client can find the program of a command.
    pub(super) is_found: &'a dyn Fn(&str) -> bool,
}

/// The lines to add by hand: those of an empty file.
pub(super) fn snippet(client: &McpClient, program: &str) -> String {
    match plan(client, "", ServerProgram { path: program, is_found: &|_| true }) {
        EntryPlan::Write(text) => text.trim_end().to_owned(),
        EntryPlan::Present | EntryPlan::Refuse(_) | EntryPlan::ChangeByHand(_) => String::new(),
    }
}

/// What to do with a file with that text.
pub(super) fn plan(client: &McpClient, before: &str, program: ServerProgram<'_>) -> EntryPlan {
    let planned = match client.format {
        ClientFormat::Json { servers, has_type } => in_json(before, servers, &JsonEntry { has_type, program }),
        ClientFormat::Toml { servers } => in_toml(before, servers, program),
    };
    planned.unwrap_or_else(EntryPlan::Refuse)
}

/// The change that an existing entry needs to start this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryChange {
    /// None: it starts an existing `coracle`, directly or through another program, or connects to a running server.
    Nothing,
    /// It starts a missing `coracle`, or one without the argument `mcp`.
    Parts { command: bool, args: bool },
    /// It starts no program, or another missing one, which is replaced with its arguments.
    All,
    /// It starts another program, which the user may need.
    OtherProgram,
}

impl EntryChange {
    fn from_entry(entry: &Value, program: ServerProgram<'_>) -> Self {
        let is_address = |it: &String| it.to_ascii_lowercase().ends_with("url");
        let has_address = || entry.as_object().is_some_and(|it| it.keys().any(is_address));
        let args = entry["args"].as_array().map(Vec::as_slice).unwrap_or_default();
        match entry["command"].as_str() {
            None if has_address() => Self::Nothing,
            Some(command) if Path::new(command).ends_with(NAME) => {
                let is_found = command == program.path || (program.is_found)(command);
                match (!is_found, !args.iter().any(|it| it == SUBCOMMAND)) {
                    (false, false) => Self::Nothing,
                    (command, args) => Self::Parts { command, args },
                }
            }
            Some(command) if !(program.is_found)(command) && !is_relative(command) => Self::All,
            Some(_) if starts_server(args) => Self::Nothing,
            Some(_) => Self::OtherProgram,
            None => Self::All,
        }
    }

    /// What the user must do with an entry of that name.
    fn by_hand(self, name: &str, program: &str) -> String {
        let command = format!("change its `command` to `{program}`");
        let both = format!("{command}, and its `args` to `[\"{SUBCOMMAND}\"]`");
        let what = match self {
            Self::Nothing => "it is as it has to be".to_owned(),
            Self::Parts { args: false, .. } => command,
            Self::Parts { command: false, .. } => format!("add `{SUBCOMMAND}` to its `args`"),
            Self::Parts { .. } => format!("{command}, and add `{SUBCOMMAND}` to its `args`"),
            Self::All => both,
            Self::OtherProgram => format!("it starts another program; to start this one, {both}"),
        };
        format!("`{name}` is there: {what}")
    }
}

/// Whether the arguments of another program, such as `npx`, `env` or `ssh`, start this server.
fn starts_server(args: &[Value]) -> bool {
    let words: Vec<&str> = args.iter().filter_map(Value::as_str).flat_map(str::split_whitespace).collect();
    (0..words.len()).any(|at| Path::new(words[at]).ends_with(NAME) && is_with_subcommand(&words[at..]))
}

/// Whether the subcommand follows the program. Options with values may be between them; another word means that the
/// first is an argument, such as a directory.
fn is_with_subcommand(words: &[&str]) -> bool {
    let mut before = words.iter().zip(&words[1..]).take_while(|(_, it)| **it != SUBCOMMAND);
    words.contains(&SUBCOMMAND) && before.all(|(before, it)| before.starts_with('-') || it.starts_with('-'))
}

/// Whether a command is a relative path, which only the client can resolve.
fn is_relative(command: &str) -> bool {
    command.contains('/') && !Path::new(command).is_absolute()
}

/// The entry as JSON.
struct JsonEntry<'a> {
    has_type: bool,
    program: ServerProgram<'a>,
}

fn json_text(text: &str) -> CstInputValue {
    CstInputValue::String(text.to_owned())
}

fn set_field(object: &CstObject, name: &str, value: CstInputValue) {
    match object.get(name) {
        Some(property) => property.set_value(value),
        None => drop(object.append(name, value)),
    }
}

impl JsonEntry<'_> {
    /// In the usual order.
    fn fields(&self) -> Vec<(String, CstInputValue)> {
        let kind = self.has_type.then(|| ("type".to_owned(), json_text("stdio")));
        let command = ("command".to_owned(), json_text(self.program.path));
        let args = ("args".to_owned(), CstInputValue::Array(vec![json_text(SUBCOMMAND)]));
        kind.into_iter().chain([command, args]).collect()
    }

    /// Changes an existing entry, and leaves the rest of it.
    fn change(&self, entry: &CstObject, change: EntryChange) {
        match change {
            EntryChange::Nothing | EntryChange::OtherProgram => {}
            EntryChange::Parts { command, args } => {
                if command {
                    set_field(entry, "command", json_text(self.program.path));
                }
                match entry.array_value("args").filter(|_| args) {
                    Some(array) => drop(array.append(json_text(SUBCOMMAND))),
                    None if args => set_field(entry, "args", CstInputValue::Array(vec![json_text(SUBCOMMAND)])),
                    None => {}
                }
            }
            EntryChange::All => {
                for (name, value) in self.fields() {
                    set_field(entry, &name, value);
                }
            }
        }
    }
}

fn in_json(before: &str, servers: &str, entry: &JsonEntry<'_>) -> Result<EntryPlan, String> {
    let text = if before.trim().is_empty() { "{}\n" } else { before };
    let root = parse(text)?;
    let no_object = |what: &str| format!("{what} is no object");
    let object = root.object_value_or_create().ok_or_else(|| no_object("the file"))?;
    let all = object.object_value_or_create(servers).ok_or_else(|| no_object(&format!("`{servers}`")))?;
    match all.object_value(NAME) {
        Some(present) => {
            let value = present.to_serde_value().unwrap_or_default();
            let change = EntryChange::from_entry(&value, entry.program);
            let is_text = value.get("command").is_none_or(Value::is_string);
            match change {
                EntryChange::Nothing => return Ok(EntryPlan::Present),
                EntryChange::OtherProgram => return Ok(by_hand(servers, change, entry.program)),
                // An old format of a client, whose other parts would be lost.
                _ if !is_text => return Ok(by_hand(servers, change, entry.program)),
                change => entry.change(&present, change),
            }
        }
        None => set_field(&all, NAME, CstInputValue::Object(entry.fields())),
    }
    let after = root.to_string();
    let (old, new) = (value_of(text)?, value_of(&after)?);
    match without_ours(old, servers) == without_ours(new, servers) {
        true => Ok(EntryPlan::Write(after)),
        false => Err("what else it says would not stay".to_owned()),
    }
}

fn by_hand(servers: &str, change: EntryChange, program: ServerProgram<'_>) -> EntryPlan {
    EntryPlan::ChangeByHand(change.by_hand(&format!("{servers}.{NAME}"), program.path))
}

fn parse(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|err| format!("it cannot be read: {err}"))
}

fn value_of(text: &str) -> Result<Value, String> {
    let value = parse(text)?.value().and_then(|it| it.to_serde_value());
    value.ok_or_else(|| "it cannot be read".to_owned())
}

/// The file without this entry, and without an object that only this entry needs.
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
    format!("[{servers}.{NAME}]\ncommand = {}\nargs = [\"{SUBCOMMAND}\"]\n", toml::Value::from(program))
}

/// Adds a separate table at the end, so that nothing before it changes. A duplicate table would not be valid TOML.
fn in_toml(before: &str, servers: &str, program: ServerProgram<'_>) -> Result<EntryPlan, String> {
    let read =
        |text: &str| toml::from_str::<toml::Table>(text).map_err(|err| format!("it cannot be read: {}", err.message()));
    let old = read(before)?;
    if let Some(present) = old.get(servers).and_then(|it| it.get(NAME)) {
        let change = EntryChange::from_entry(&serde_json::to_value(present).unwrap_or_default(), program);
        return Ok(match change {
            EntryChange::Nothing => EntryPlan::Present,
            change => by_hand(servers, change, program),
        });
    }
    let gap = if before.is_empty() || before.ends_with("\n\n") {
        ""
    } else if before.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    let after = format!("{before}{gap}{}", toml_entry(servers, program.path));
    match read(&after) {
        Ok(_) => Ok(EntryPlan::Write(after)),
        Err(_) => Err(format!("`{servers}` cannot get another entry by a table of its own")),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::super::clients::ALL;
    use super::*;

    fn planned(client: &str, before: &str) -> EntryPlan {
        let is_found = |it: &str| ["coracle", "npx", "ssh", "/home/kim/bin/proxied"].contains(&it);
        let program = ServerProgram { path: "/usr/bin/coracle", is_found: &is_found };
        plan(ALL.iter().find(|it| it.name == client).unwrap(), before, program)
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
            let host = coracle_context::Host::below(std::path::Path::new("/home/kim"));
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
    fn an_entry_keeps_what_the_person_wrote_into_it() {
        let lost = r#"{
  "mcpServers": {
    "coracle": {
      "command": "/old/bin/coracle", // mine
      "args": ["--engine", "docker", "mcp"],
      "env": { "X": "1" }
    }
  }
}
"#;
        assert_eq!(written("cursor", lost), lost.replace("/old/bin/", "/usr/bin/"));
        let entry = |fields: &str| format!("{{\"mcpServers\": {{\"coracle\": {{{fields}}}}}}}");
        let present = r#""command": "coracle", "args": ["mcp", "--toolsets", "classic"], "env": {}"#;
        for fields in [present, r#""type": "http", "url": "http://127.0.0.1:8080/mcp""#] {
            assert_eq!(planned("claude-code", &entry(fields)), EntryPlan::Present, "{fields}");
        }
        let text = written("cursor", &entry(r#""command": "coracle", "args": ["--engine", "docker"]"#));
        assert!(text.contains(r#"["--engine", "docker", "mcp"]"#), "{text}");
        let text = written("cursor", &entry(r#""command": "gone", "args": ["-y", "coracle"], "env": { "X": "1" }"#));
        assert!(text.contains("/usr/bin/coracle") && !text.contains("-y") && text.contains("\"X\""), "{text}");
    }

    #[test]
    fn another_program_that_is_found_stays() {
        let entry = |fields: &str| planned("cursor", &format!("{{\"mcpServers\": {{\"coracle\": {{{fields}}}}}}}"));
        for fields in [
            r#""command": "npx", "args": ["coracle", "mcp", "--toolsets", "classic"]"#,
            r#""command": "ssh", "args": ["host", "exec /usr/bin/coracle mcp"]"#,
            r#""command": "${userHome}/bin/env", "args": ["coracle", "mcp"]"#,
            r#""command": "npx", "args": ["coracle", "--engine", "docker", "mcp"]"#,
            r#""command": "npx", "args": ["--directory", "/src/coracle", "run", "coracle", "mcp"]"#,
            r#""command": "ssh", "args": ["host", "cd /src/coracle && ./coracle mcp"]"#,
        ] {
            assert_eq!(entry(fields), EntryPlan::Present, "{fields}");
        }
        for fields in [
            r#""command": "/home/kim/bin/proxied""#,
            r#""command": "npx", "args": ["-y", "coracle"]"#,
            r#""command": "npx", "args": ["--directory", "/src/coracle", "run", "mcp"]"#,
            r#""command": "${userHome}/bin/proxied""#,
        ] {
            let EntryPlan::ChangeByHand(what) = entry(fields) else { panic!("{fields}") };
            let end = "change its `command` to `/usr/bin/coracle`, and its `args` to `[\"mcp\"]`";
            assert!(what.contains("starts another program") && what.ends_with(end), "{what}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_changed_is_reported_without_a_second_entry() {
        let toml = |more: &str| format!("[mcp_servers.coracle]\n{more}");
        assert_eq!(planned("codex", &toml("command = \"coracle\"\nargs = [\"mcp\"]\n")), EntryPlan::Present);
        let by_hand = |client: &str, before: &str| match planned(client, before) {
            EntryPlan::ChangeByHand(what) => what,
            other => panic!("{other:?}"),
        };
        assert_snapshot!(
            by_hand("codex", &toml("command = \"/old/coracle\"\nargs = [\"mcp\"]\n")),
            @"`mcp_servers.coracle` is there: change its `command` to `/usr/bin/coracle`"
        );
        assert_snapshot!(
            by_hand("codex", &toml("command = \"/old\"\n")),
            @r#"`mcp_servers.coracle` is there: change its `command` to `/usr/bin/coracle`, and its `args` to `["mcp"]`"#
        );
        by_hand("zed", r#"{ "context_servers": { "coracle": { "command": { "path": "/old/coracle" } } } }"#);
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
        ] {
            assert!(matches!(planned(client, text), EntryPlan::Refuse(_)), "{client}: {text}");
        }
    }
}

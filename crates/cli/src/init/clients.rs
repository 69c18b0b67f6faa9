//! MCP clients, and the file with the servers of each.

use std::path::PathBuf;

use coracle_context::Host;

/// The format of a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientFormat {
    /// JSON, usually with comments; servers are below this key.
    Json { servers: &'static str, has_type: bool },
    /// TOML; each server is a table below this one.
    Toml { servers: &'static str },
}

/// A program that starts `coracle mcp`.
#[derive(Clone, Copy, Debug)]
pub(super) struct McpClient {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) format: ClientFormat,
    /// Its file on Linux and, if it differs, on a Mac: below the home or the configuration directory.
    linux: ClientPath,
    mac: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum ClientPath {
    Home(&'static str),
    Config(&'static str),
}

const SERVERS: ClientFormat = ClientFormat::Json { servers: "mcpServers", has_type: false };

/// All known clients.
pub(super) const ALL: &[McpClient] = &[
    McpClient {
        name: "claude-code",
        title: "Claude Code",
        format: ClientFormat::Json { servers: "mcpServers", has_type: true },
        linux: ClientPath::Home(".claude.json"),
        mac: None,
    },
    McpClient {
        name: "claude-desktop",
        title: "Claude Desktop",
        format: SERVERS,
        linux: ClientPath::Config("Claude/claude_desktop_config.json"),
        mac: Some("Library/Application Support/Claude/claude_desktop_config.json"),
    },
    McpClient {
        name: "codex",
        title: "Codex CLI",
        format: ClientFormat::Toml { servers: "mcp_servers" },
        linux: ClientPath::Home(".codex/config.toml"),
        mac: None,
    },
    McpClient {
        name: "cursor",
        title: "Cursor",
        format: SERVERS,
        linux: ClientPath::Home(".cursor/mcp.json"),
        mac: None,
    },
    McpClient {
        name: "gemini",
        title: "Gemini CLI",
        format: SERVERS,
        linux: ClientPath::Home(".gemini/settings.json"),
        mac: None,
    },
    McpClient {
        name: "vscode",
        title: "Visual Studio Code",
        format: ClientFormat::Json { servers: "servers", has_type: true },
        linux: ClientPath::Config("Code/User/mcp.json"),
        mac: Some("Library/Application Support/Code/User/mcp.json"),
    },
    McpClient {
        name: "windsurf",
        title: "Windsurf",
        format: SERVERS,
        linux: ClientPath::Home(".codeium/windsurf/mcp_config.json"),
        mac: None,
    },
    McpClient {
        name: "zed",
        title: "Zed",
        format: ClientFormat::Json { servers: "context_servers", has_type: false },
        linux: ClientPath::Config("zed/settings.json"),
        mac: Some(".config/zed/settings.json"),
    },
];

impl McpClient {
    /// Its file for all projects of the user.
    pub(super) fn file(&self, host: &Host) -> PathBuf {
        match (self.mac.filter(|_| cfg!(target_os = "macos")), self.linux) {
            (Some(path), _) | (None, ClientPath::Home(path)) => host.home.join(path),
            (None, ClientPath::Config(path)) => host.config_home.join(path),
        }
    }

    /// Whether the user has it: the file or its directory exists.
    pub(super) fn is_used(&self, host: &Host) -> bool {
        let file = self.file(host);
        file.exists() || file.parent().is_some_and(|it| *it != *host.home && it.is_dir())
    }
}

//! The lists of the configuration with the rules of proxies.

use serde::{Deserialize, Serialize};

use crate::config::{Config, Egress};

/// The list of the configuration with the rules of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleList {
    /// Of containers of `create`.
    #[serde(rename = "security.egress.allow")]
    Security,
    /// Of a session's workspace.
    #[serde(rename = "workspace.egress.allow")]
    Workspace,
    /// Of a session's snippets.
    #[serde(rename = "run_code.egress.allow")]
    RunCode,
    /// Of sandboxes.
    #[serde(rename = "sandbox.egress.allow")]
    Sandbox,
}

impl RuleList {
    /// The name of the setting.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            Self::Security => "security.egress.allow",
            Self::Workspace => "workspace.egress.allow",
            Self::RunCode => "run_code.egress.allow",
            Self::Sandbox => "sandbox.egress.allow",
        }
    }

    /// Whether a refused request waits for the user anywhere.
    #[must_use]
    pub fn has_wait(config: &Config) -> bool {
        let all = [Self::Security, Self::Workspace, Self::RunCode, Self::Sandbox];
        all.iter().any(|it| !it.table(config).approval_timeout.0.is_zero())
    }

    /// The table with the list.
    #[must_use]
    pub fn table(self, config: &Config) -> &Egress {
        match self {
            Self::Security => &config.security.egress,
            Self::Workspace => &config.workspace.egress,
            Self::RunCode => &config.run_code.egress,
            Self::Sandbox => &config.sandbox.egress,
        }
    }
}

//! The same intents as calls of each toolset.

use serde_json::{Value, json};

use crate::person::{PACKAGES, PURPOSE};

/// The tools that a model can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vocabulary {
    /// The single tool and the session tools.
    Classic,
    Agent,
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) tool: &'static str,
    pub(crate) arguments: Value,
}

/// What a job does before it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JobEvent<'a> {
    /// It prints a line that matches.
    Line(&'a str),
    /// It listens.
    Port(u16),
}

impl Vocabulary {
    pub(crate) const ALL: [Self; 2] = [Self::Classic, Self::Agent];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Agent => "agent",
        }
    }

    pub(crate) fn toolsets(self) -> &'static str {
        match self {
            Self::Classic => "classic,workspace",
            Self::Agent => "agent",
        }
    }

    fn is_agent(self) -> bool {
        self == Self::Agent
    }

    /// A tool that both toolsets have, under the same or another name.
    pub(crate) fn tool(self, agent: &'static str, classic: &'static str, arguments: Value) -> Call {
        Call { tool: if self.is_agent() { agent } else { classic }, arguments }
    }

    fn operation(self, name: &str, mut arguments: Value) -> Call {
        arguments["operation"] = name.into();
        Call { tool: "containers", arguments }
    }

    pub(crate) fn run(self, command: &str, timeout: Option<u32>) -> Call {
        let mut arguments = json!({ "command": command });
        if let Some(timeout) = timeout {
            arguments["timeout"] = timeout.into();
        }
        if self.is_agent() { Call { tool: "shell", arguments } } else { self.operation("exec", arguments) }
    }

    pub(crate) fn start(self, command: &str) -> Call {
        match self.is_agent() {
            true => Call { tool: "shell", arguments: json!({ "command": command, "background": true }) },
            false => self.operation("exec_background", json!({ "command": command })),
        }
    }

    /// Waits for the end of a job, or for something before it.
    pub(crate) fn wait(self, job: &str, until: Option<JobEvent<'_>>) -> Call {
        let (field, condition, value) = match until {
            Some(JobEvent::Line(pattern)) => ("pattern", "regex", json!(pattern)),
            Some(JobEvent::Port(port)) => ("port", "port", json!(port)),
            None => ("timeout", "exit", json!(30)),
        };
        if self.is_agent() {
            return Call { tool: "job", arguments: json!({ "job": job, field: value }) };
        }
        let mut arguments = json!({ "job_id": job, "until": condition, field: value });
        if field == "pattern" {
            arguments["offset"] = 0.into();
        }
        self.operation("job_wait", arguments)
    }

    pub(crate) fn cancel(self, job: &str) -> Call {
        match self.is_agent() {
            true => Call { tool: "job", arguments: json!({ "job": job, "action": "cancel" }) },
            false => self.operation("exec_cancel", json!({ "job_id": job })),
        }
    }

    pub(crate) fn forward(self, port: u16) -> Call {
        match self.is_agent() {
            true => Call { tool: "forward", arguments: json!({ "port": port }) },
            false => self.operation("forward", json!({ "container_port": port })),
        }
    }

    pub(crate) fn create(self, name: &str) -> Call {
        let arguments = json!({ "name": name, "purpose": PURPOSE, "packages": PACKAGES, "mount_cwd": false });
        if self.is_agent() { Call { tool: "create", arguments } } else { self.operation("create", arguments) }
    }

    pub(crate) fn destroy(self, name: &str) -> Call {
        let arguments = json!({ "container": name });
        if self.is_agent() { Call { tool: "destroy", arguments } } else { self.operation("destroy", arguments) }
    }

    pub(crate) fn fork(self, name: &str) -> Call {
        self.operation("fork", json!({ "name": name, "mount_cwd": false }))
    }

    pub(crate) fn snapshot(self, name: &str) -> Call {
        self.operation("snapshot", json!({ "name": name }))
    }

    pub(crate) fn restore(self, name: &str, snapshot: &str) -> Call {
        self.operation("restore", json!({ "name": name, "snapshot": snapshot, "mount_cwd": false }))
    }

    pub(crate) fn forget(self, snapshot: &str) -> Call {
        self.operation("snapshot_delete", json!({ "snapshot": snapshot }))
    }
}

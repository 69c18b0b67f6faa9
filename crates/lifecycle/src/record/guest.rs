//! What is remembered of the guest of a container.

use coracle_runtime::Container;
use coracle_types::{Ids, ProcessId};
use serde::{Deserialize, Serialize};

/// What a record knows of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestRecord {
    /// SHA-256 of the program, in hex.
    pub sha256: String,
    /// Its socket is in a directory of Coracle's.
    pub socket: bool,
    /// PID 1 on this host, as it was last seen; missing where it cannot be seen.
    pub pid1: Option<ProcessId>,
    /// Who PID 1 is, where it is not root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<Ids>,
}

impl GuestRecord {
    /// How it came in: `bound` or `uploaded`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        if self.socket { "bound" } else { "uploaded" }
    }

    /// PID 1 of its container. That of an engine which shares no files with this host is no process of this host.
    pub(crate) fn pid1_of(&self, container: &Container) -> Option<ProcessId> {
        container.pid.filter(|_| self.socket).and_then(ProcessId::from_pid)
    }

    /// What a container's labels say, when its record is lost: how its guest came in, and who PID 1 is.
    pub(crate) fn of_labels(word: &str, own: Option<&str>) -> Option<Self> {
        let socket = match word {
            "bound" => true,
            "uploaded" => false,
            _ => return None,
        };
        Some(Self { sha256: String::new(), socket, pid1: None, own: own.and_then(|it| Ids::parse(it).ok()) })
    }
}

//! The OCI runtimes that the engine can use.

use std::fmt;

use coracle_types::IsolationKind;
use serde::{Deserialize, Serialize};

/// A runtime with the command line of the OCI: `create`, `start`, `state`, `delete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OciRuntime {
    /// Namespaces of the host's kernel; Podman's default.
    Crun,
    /// Namespaces of the host's kernel; Docker's default.
    Runc,
    /// gVisor: a kernel in user space between the container and the host's.
    Runsc,
}

impl OciRuntime {
    /// The name of its program.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Crun => "crun",
            Self::Runc => "runc",
            Self::Runsc => "runsc",
        }
    }

    /// How its containers are isolated from this machine.
    #[must_use]
    pub fn isolation(self) -> IsolationKind {
        match self {
            Self::Crun | Self::Runc => IsolationKind::Namespaces,
            Self::Runsc => IsolationKind::Gvisor,
        }
    }

    /// Whether the processes of its containers are not processes of the host, so that only its program can run commands there.
    #[must_use]
    pub fn has_own_kernel(self) -> bool {
        self == Self::Runsc
    }
}

impl fmt::Display for OciRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

//! Engines, and the states of their containers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The supported engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Docker Engine.
    Docker,
    /// Podman.
    Podman,
    /// Apple's `container`.
    Container,
    /// Coracle's built-in engine, which needs no other program.
    Embedded,
    /// Pods of a Kubernetes cluster.
    Kubernetes,
    /// State in memory, for tests and dry runs.
    Fake,
}

impl EngineKind {
    /// Whether it has its own program, which Coracle and the user can both use.
    #[must_use]
    pub fn has_program(self) -> bool {
        !matches!(self, Self::Embedded | Self::Kubernetes | Self::Fake)
    }

    /// Whether a container without a network has one nevertheless, which a policy closes.
    #[must_use]
    pub fn closes_by_policy(self) -> bool {
        self == Self::Kubernetes
    }

    /// The word used in configuration, records and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Container => "container",
            Self::Embedded => "embedded",
            Self::Kubernetes => "kubernetes",
            Self::Fake => "fake",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// State of a container, by names that all engines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerStatus {
    /// Created, never started.
    Created,
    /// Running.
    Running,
    /// Frozen.
    Paused,
    /// Between two runs.
    Restarting,
    /// Ended.
    Exited,
    /// Ended, and the engine could not clean up.
    Dead,
}

impl fmt::Display for ContainerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Restarting => "restarting",
            Self::Exited => "exited",
            Self::Dead => "dead",
        })
    }
}

/// How a container is isolated from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationKind {
    /// Namespaces of the host's kernel, with a filter of system calls.
    Namespaces,
    /// gVisor: a kernel in user space, which handles the container's system calls.
    Gvisor,
    /// A virtual machine with its own kernel.
    VirtualMachine,
}

impl fmt::Display for IsolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespaces => "namespaces",
            Self::Gvisor => "gvisor",
            Self::VirtualMachine => "virtual_machine",
        })
    }
}

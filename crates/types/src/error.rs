//! Errors, by how a caller can react.

use std::time::Duration;
use std::{fmt, io};

use coracle_protocol as protocol;

use crate::{
    ArchiveError, ContainerName, ContainerPath, ContainerStatus, EngineKind, ExecOutput, ImageRef, JobId, NetworkName,
};

/// The result of an operation on an engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failures of an engine, with one variant per reaction.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No program of an engine was found.
    #[error("no `{program}` program was found")]
    NotInstalled {
        /// The program's name.
        program: String,
    },
    /// This program was built without support for the engine.
    #[error("this program was built without support for {engine}")]
    NotBuiltIn {
        /// The engine.
        engine: EngineKind,
    },
    /// The program is installed and its engine does not answer.
    #[error("{engine} does not answer: {excerpt}")]
    Unavailable {
        /// The engine.
        engine: EngineKind,
        /// The connection was refused with "permission denied", judged by the endpoint's mode.
        denied: bool,
        /// Its output.
        excerpt: Excerpt,
    },
    /// The engine is on another host, and there is no connection to it.
    #[error("{engine} at `{endpoint}` is not reached: {fault}")]
    NotConnected {
        /// The engine.
        engine: EngineKind,
        /// Its address, without parts that may be secret.
        endpoint: String,
        /// The reason.
        fault: ConnectionFault,
        /// The output of the program that connects.
        excerpt: Excerpt,
    },
    /// The engine is older than the supported versions.
    #[error("{engine} {found} is too old: {needed} or later is needed")]
    TooOld {
        /// The engine.
        engine: EngineKind,
        /// The version found: of the engine, or of the system that it runs on.
        found: String,
        /// The oldest supported version.
        needed: &'static str,
    },
    /// The engine's command line cannot transmit this text: part of it would be interpreted differently.
    #[error("{engine} cannot be given {what} `{}`: it {why}", value.escape_debug())]
    NotEncodable {
        /// The engine.
        engine: EngineKind,
        /// The kind of text.
        what: &'static str,
        /// The text.
        value: String,
        /// The reason.
        why: &'static str,
    },
    /// The removal was reported as done, but the object still exists.
    #[error("`{name}` could not be removed: {excerpt}")]
    CleanupFailed {
        /// Its name.
        name: String,
        /// The engine's last output.
        excerpt: Excerpt,
    },
    /// The configured pool of warm containers cannot be used.
    #[error("the warm pool `{pool}` cannot be used: {reason}")]
    WarmPool {
        /// Its name.
        pool: String,
        /// The reason.
        reason: String,
    },
    /// The engine answered and has no such container.
    #[error("no container `{0}`")]
    NoSuchContainer(String),
    /// The container exists and is stopped.
    #[error("container is not running (status `{status}`)")]
    NotRunning {
        /// Its state.
        status: ContainerStatus,
        /// Exit code of its PID 1.
        exit_code: Option<i64>,
        /// Whether the kernel killed it because of memory.
        oom_killed: bool,
        /// Output of a command until the container ended.
        output: Option<Box<ExecOutput>>,
    },
    /// The engine ended the container at its configured limit.
    #[error("the container was ended after {} s, the longest that one may run", limit.as_secs())]
    LifetimeOver {
        /// The limit.
        limit: Duration,
    },
    /// The name is taken.
    #[error("a container named `{0}` already exists")]
    NameTaken(ContainerName),
    /// The network name is taken.
    #[error("a network named `{0}` already exists")]
    NetworkTaken(NetworkName),
    /// A host port cannot be bound.
    #[error("host port {0} is taken")]
    PortTaken(u16),
    /// No registry has that image, or the registry refused it.
    #[error("image `{image}` could not be pulled: {excerpt}")]
    PullFailed {
        /// The image.
        image: ImageRef,
        /// The engine's output.
        excerpt: Excerpt,
    },
    /// A path inside is missing.
    #[error("no `{0}` in the container")]
    NoSuchPath(ContainerPath),
    /// A shell is needed and the image has none.
    #[error("the container has no `/bin/sh`")]
    NoShell,
    /// No job has that id.
    #[error("no job `{0}`")]
    NoSuchJob(JobId),
    /// The guest refused, by its own reasons.
    #[error(transparent)]
    Refused(#[from] protocol::RpcError),
    /// The guest does not answer in a new container, or answers incorrectly.
    #[error("the guest in the container does not answer: {reason}")]
    GuestFailed {
        /// The observation that led to it.
        reason: String,
    },
    /// The guest speaks another version of the protocol.
    #[error("the guest in the container speaks version {guest} of the protocol, this program version {host}")]
    GuestVersion {
        /// The guest's version.
        guest: u32,
        /// The host's version.
        host: u32,
    },
    /// Something else is mounted in the container than the host directory that was admitted: it was replaced by a link.
    #[error("{} of the container {} not what was admitted", targets.join(", "), if targets.len() == 1 { "is" } else { "are" })]
    MountChanged {
        /// Mount points in the container, or paths on the host.
        targets: Vec<String>,
    },
    /// The guest runs, but the container's file system was removed from inside.
    #[error("the container's own files were removed from inside, as `rm -rf /` does: {missing}")]
    FilesRemoved {
        /// The missing part.
        missing: String,
    },
    /// The link to the guest broke permanently; it is unknown whether the command began, or how it ended.
    #[error("the link to the guest is lost: {reason}")]
    GuestLost {
        /// The observation that led to it.
        reason: String,
        /// Output of a command until then.
        output: Option<Box<ExecOutput>>,
    },
    /// More bytes than allowed.
    #[error("more than {max_bytes} bytes")]
    TooLarge {
        /// The limit.
        max_bytes: u64,
    },
    /// This engine does not support it.
    #[error("{engine} cannot do that: {capability}")]
    Unsupported {
        /// The engine.
        engine: EngineKind,
        /// The missing capability.
        capability: Capability,
    },
    /// The engine's account has no permission for it.
    #[error("{engine} does not allow `{verb}`: {excerpt}")]
    Forbidden {
        /// The engine.
        engine: EngineKind,
        /// The verb.
        verb: &'static str,
        /// Its output.
        excerpt: Excerpt,
    },
    /// A quota of the engine is used up.
    #[error("a quota of {engine} is used up: {excerpt}")]
    QuotaExceeded {
        /// The engine.
        engine: EngineKind,
        /// Its output.
        excerpt: Excerpt,
    },
    /// A rule of the engine's administrator forbids this container.
    #[error("a rule of {engine} forbids this container: {excerpt}")]
    AdmissionDenied {
        /// The engine.
        engine: EngineKind,
        /// Its output.
        excerpt: Excerpt,
    },
    /// No node of the engine accepts the container.
    #[error("no node takes the container: {excerpt}")]
    Unschedulable {
        /// The engine's output.
        excerpt: Excerpt,
    },
    /// The node that the container runs on does not answer.
    #[error("node `{node}` of the container is lost: {reason}")]
    NodeLost {
        /// The node's name.
        node: String,
        /// The observation that led to it.
        reason: String,
    },
    /// The engine did not answer in time; the effect is unknown.
    #[error("`{verb}` was not answered within {} s", after.as_secs())]
    TimedOut {
        /// The verb.
        verb: &'static str,
        /// The deadline.
        after: Duration,
    },
    /// The engine refused or failed.
    #[error("`{verb}` failed (exit {exit}): {excerpt}")]
    Engine {
        /// The verb.
        verb: &'static str,
        /// Exit status of the engine's program.
        exit: i32,
        /// Its output.
        excerpt: Excerpt,
    },
    /// The engine's answer cannot be parsed.
    #[error("the answer to `{verb}` cannot be read: {detail}")]
    Unreadable {
        /// The verb.
        verb: &'static str,
        /// The position and cause of the parse error.
        detail: String,
    },
    /// The engine's program could not be started.
    #[error("cannot start `{program}`")]
    Spawn {
        /// The program.
        program: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file on the host could not be read or written.
    #[error("{what}")]
    Host {
        /// The attempted operation.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A tar was refused or is truncated.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// Why a host, or the engine on it, cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionFault {
    /// The address is invalid, with the reason.
    Address(&'static str),
    /// There is no `ssh` program.
    NoProgram,
    /// The host's key is unknown, or has changed.
    HostKey,
    /// It accepts no key of this user.
    Login,
    /// It does not answer.
    Unreachable,
    /// The engine's socket exists and connections to it fail: nothing listens at it, or the host forwards none.
    NotForwarded,
    /// There is no socket of an engine.
    NoEngine,
    /// The user there may not use the socket.
    Denied,
    /// The connection ended for another reason.
    Ended,
}

impl ConnectionFault {
    /// Its word in answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.texts().0
    }

    /// Its word, and the sentence for messages.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Address(why) => ("address", why),
            Self::NoProgram => ("no_ssh", "no `ssh` program was found"),
            Self::HostKey => ("host_key", "the key of the machine is not known, or has changed"),
            Self::Login => ("login", "the machine accepts no key of yours"),
            Self::Unreachable => ("unreachable", "the machine does not answer"),
            Self::NotForwarded => ("not_forwarded", "connections to its socket there are refused"),
            Self::NoEngine => ("no_engine", "there is no socket of it there"),
            Self::Denied => ("denied", "the user there may not use the engine's socket"),
            Self::Ended => ("ended", "`ssh` ended"),
        }
    }
}

impl fmt::Display for ConnectionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)
    }
}

/// A capability that an engine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// Pass a GPU to a container.
    Gpu,
    /// The supervisor inside.
    Guest,
    /// Share the host's network.
    HostNetwork,
    /// Isolate the members of one network from each other.
    PartedNetwork,
    /// Bring up stacks of services.
    Compose,
    /// Run the health check of the image.
    HealthCheck,
    /// A root that is read-only, with a guest that is put in as a copy.
    ReadOnlyRoot,
    /// Create an image from a container.
    Commit,
    /// Build an image from a Dockerfile.
    Build,
    /// Publish ports on the host.
    Publish,
    /// Entries in the hosts file.
    HostEntries,
    /// Freeze a container.
    Pause,
    /// Report events of containers.
    Events,
    /// Limit the processes of a container.
    PidsLimit,
    /// Assign a fraction of a core.
    FractionalCpus,
    /// Limit swap separately from memory.
    SwapLimit,
    /// Prevent programs from gaining privileges. If the engine lacks it, the guest does it.
    NoNewPrivileges,
    /// Filter system calls. If the engine lacks it, each container has its own kernel.
    Seccomp,
    /// Restart containers automatically.
    RestartPolicy,
    /// Copy tars in and out, with their owners.
    CopyTar,
    /// Map the user to a user inside.
    KeepId,
    /// Use a separate range of user ids for each container.
    UserNamespace,
    /// Have users other than root in a container.
    OtherUsers,
    /// Reach other hosts from a container.
    OutgoingNetwork,
    /// Join containers with named networks.
    NamedNetwork,
    /// Copy a container without an intermediate image.
    Fork,
    /// Save states of a container's files, and go back to one.
    Checkpoint,
    /// Create containers with an OCI runtime.
    OciRuntime,
    /// Mount a directory of this host.
    Bind,
    /// Start a stopped container again.
    Restart,
}

impl Capability {
    /// Its word in answers and in the list of what an engine lacks.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.texts().0
    }

    /// Its word, and the phrase for messages.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Gpu => ("gpu", "gpu"),
            Self::Guest => ("guest", "guest"),
            Self::HostNetwork => ("host_network", "host network"),
            Self::PartedNetwork => ("parted_network", "keeping the members of one network apart"),
            Self::Compose => ("compose", "compose"),
            Self::HealthCheck => ("health_check", "health check of the image"),
            Self::ReadOnlyRoot => ("read_only_root", "a read-only root beside a guest that is copied in"),
            Self::Commit => ("commit", "an image of a container"),
            Self::Build => ("build", "an image by a Dockerfile"),
            Self::Publish => ("publish", "ports on the host"),
            Self::HostEntries => ("host_entries", "lines of the hosts file"),
            Self::Pause => ("pause", "pausing a container"),
            Self::Events => ("events", "events"),
            Self::PidsLimit => ("limits_pids", "a limit of processes"),
            Self::FractionalCpus => ("fractional_cpus", "parts of a core"),
            Self::SwapLimit => ("swap_limit", "a limit of swap"),
            Self::NoNewPrivileges => ("no_new_privileges", "no new privileges"),
            Self::Seccomp => ("seccomp", "a filter of system calls"),
            Self::RestartPolicy => ("restart_policy", "starting again by itself"),
            Self::CopyTar => ("copy_tar", "copying with owners"),
            Self::KeepId => ("keep_id", "mapping the user to a user inside"),
            Self::OtherUsers => ("other_users", "users beside root without subordinate ids of this account"),
            Self::UserNamespace => ("user_namespace", "users of its own"),
            Self::OutgoingNetwork => ("outgoing_network", "outgoing traffic of a container"),
            Self::NamedNetwork => ("named_network", "networks that several containers share"),
            Self::Fork => ("fork", "a copy of a container without an image"),
            Self::Checkpoint => ("checkpoint", "checkpoints of a container"),
            Self::OciRuntime => ("oci_runtime", "containers of an OCI runtime without root"),
            Self::Bind => ("bind", "mounting a directory of this machine"),
            Self::Restart => ("restart", "starting a container again that was stopped"),
        }
    }

    /// Lists capabilities that an engine lacks in every version and configuration.
    #[must_use]
    pub fn lacked_by(engine: EngineKind) -> &'static [Self] {
        match engine {
            EngineKind::Docker | EngineKind::Podman | EngineKind::Fake => &[Self::Fork, Self::Checkpoint],
            EngineKind::Embedded => &[Self::Build, Self::Gpu, Self::RestartPolicy, Self::Events],
            EngineKind::Kubernetes => &[
                Self::PidsLimit,
                Self::Commit,
                Self::Build,
                Self::Compose,
                Self::Gpu,
                Self::HostNetwork,
                Self::PartedNetwork,
                Self::Publish,
                Self::Bind,
                Self::Restart,
                Self::Pause,
                Self::HealthCheck,
                Self::Events,
                Self::SwapLimit,
                Self::RestartPolicy,
                Self::KeepId,
                Self::UserNamespace,
                Self::Fork,
                Self::Checkpoint,
            ],
            EngineKind::Container => &[
                Self::PidsLimit,
                Self::Commit,
                Self::Build,
                Self::Compose,
                Self::Gpu,
                Self::KeepId,
                Self::NoNewPrivileges,
                Self::Seccomp,
                Self::Pause,
                Self::Events,
                Self::HealthCheck,
                Self::FractionalCpus,
                Self::SwapLimit,
                Self::RestartPolicy,
                Self::CopyTar,
                Self::UserNamespace,
                Self::HostNetwork,
                Self::PartedNetwork,
                Self::Publish,
                Self::HostEntries,
                Self::Fork,
                Self::Checkpoint,
            ],
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)
    }
}

/// An engine's output: at most 4 KiB, control characters escaped, user parts of URLs removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt(String);

impl Excerpt {
    const MAX_BYTES: usize = 4096;

    /// Takes the end of an engine's output, where the reason is.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(Self::MAX_BYTES)..]);
        Self(crate::escape(&without_url_users(text.trim())))
    }

    /// The words.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "it printed no reason" } else { &self.0 })
    }
}

fn without_url_users(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        cleaned.push_str(before);
        let host_ends = after.find(|c: char| c == '/' || c.is_whitespace() || c == '"').unwrap_or(after.len());
        let host_begins = after[..host_ends].rfind('@').map_or(0, |at| at + 1);
        rest = &after[host_begins..];
    }
    cleaned + rest
}

#[cfg(test)]
mod tests {
    use super::Excerpt;

    #[test]
    fn an_excerpt_contains_no_password_of_a_url_and_no_control_characters() {
        let excerpt = Excerpt::from_bytes(b"pull of https://me:hunter2@registry/x failed\x1b[31m\n");
        assert_eq!(excerpt.as_str(), "pull of https://registry/x failed\\u{1b}[31m");
    }

    #[test]
    fn an_excerpt_is_short_and_has_the_end() {
        let excerpt = Excerpt::from_bytes(&[&[b'x'; 100_000][..], b"the reason"].concat());
        assert!(excerpt.as_str().len() <= 4096 && excerpt.as_str().ends_with("the reason"));
    }
}

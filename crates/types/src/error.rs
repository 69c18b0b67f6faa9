//! Errors, by what a caller can do about them.

use std::fmt;
use std::io;
use std::time::Duration;

use coracle_protocol as protocol;

use crate::{
    ArchiveError, ContainerName, ContainerPath, ContainerStatus, EngineKind, ExecOutput, ImageRef, JobId, NetworkName,
};

/// The result of a verb.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failures of an engine, one variant a reaction.
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
    /// The program is there and its engine does not answer.
    #[error("{engine} does not answer: {excerpt}")]
    Unavailable {
        /// The engine.
        engine: EngineKind,
        /// The connection was refused with "permission denied", judged by the endpoint's mode.
        denied: bool,
        /// Its own words.
        excerpt: Excerpt,
    },
    /// The engine is on another machine, and there is no connection to it.
    #[error("{engine} at `{endpoint}` is not reached: {fault}")]
    NotConnected {
        /// The engine.
        engine: EngineKind,
        /// Its address, without what may be secret.
        endpoint: String,
        /// The reason.
        fault: ConnectionFault,
        /// The words of the program that connects.
        excerpt: Excerpt,
    },
    /// The engine is there, and older than what we can drive.
    #[error("{engine} {found} is too old: {needed} or later is needed")]
    TooOld {
        /// The engine.
        engine: EngineKind,
        /// The version found: of the engine, or of the system that it runs on.
        found: String,
        /// The oldest that is taken.
        needed: &'static str,
    },
    /// The engine's command line cannot carry this text: part of it would be read as something else.
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
    /// The removal was reported as done, but the object is still there.
    #[error("`{name}` could not be removed: {excerpt}")]
    CleanupFailed {
        /// Its name.
        name: String,
        /// The engine's last words.
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
    /// The container is there and stopped.
    #[error("container is not running (status `{status}`)")]
    NotRunning {
        /// Its state.
        status: ContainerStatus,
        /// Exit code of its PID 1.
        exit_code: Option<i64>,
        /// Whether the kernel ended it for memory.
        oom_killed: bool,
        /// Output of a command until the container ended.
        output: Option<Box<ExecOutput>>,
    },
    /// The engine ended the container at the limit of its configuration.
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
        /// The engine's words.
        excerpt: Excerpt,
    },
    /// A path inside is missing.
    #[error("no `{0}` in the container")]
    NoSuchPath(ContainerPath),
    /// A shell is needed and the image has none.
    #[error("the container has no `/bin/sh`")]
    NoShell,
    /// No job of that id.
    #[error("no job `{0}`")]
    NoSuchJob(JobId),
    /// The guest refused, by its own reasons.
    #[error(transparent)]
    Refused(#[from] protocol::RpcError),
    /// The guest does not answer in a new container, or not as it should.
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
    /// Something else is mounted in the container than the host directory that was admitted: a link was put in its place.
    #[error("{} of the container {} not what was admitted", targets.join(", "), if targets.len() == 1 { "is" } else { "are" })]
    MountChanged {
        /// Mount points in the container, or paths on the host.
        targets: Vec<String>,
    },
    /// The guest runs, and what makes up the container's file system is gone: something inside removed it.
    #[error("the container's own files were removed from inside, as `rm -rf /` does: {missing}")]
    FilesRemoved {
        /// The missing part.
        missing: String,
    },
    /// The link to the guest broke for good; whether the command began, or how it ended, is not known.
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
    /// This engine cannot do it.
    #[error("{engine} cannot do that: {capability}")]
    Unsupported {
        /// The engine.
        engine: EngineKind,
        /// The missing capability.
        capability: Capability,
    },
    /// The engine's account may not do it.
    #[error("{engine} does not allow `{verb}`: {excerpt}")]
    Forbidden {
        /// The engine.
        engine: EngineKind,
        /// The verb.
        verb: &'static str,
        /// Its own words.
        excerpt: Excerpt,
    },
    /// A quota of the engine is used up.
    #[error("a quota of {engine} is used up: {excerpt}")]
    QuotaExceeded {
        /// The engine.
        engine: EngineKind,
        /// Its own words.
        excerpt: Excerpt,
    },
    /// A rule of the engine's administrator forbids this container.
    #[error("a rule of {engine} forbids this container: {excerpt}")]
    AdmissionDenied {
        /// The engine.
        engine: EngineKind,
        /// Its own words.
        excerpt: Excerpt,
    },
    /// No machine of the engine takes the container.
    #[error("no node takes the container: {excerpt}")]
    Unschedulable {
        /// The engine's own words.
        excerpt: Excerpt,
    },
    /// The machine that the container runs on does not answer.
    #[error("node `{node}` of the container is lost: {reason}")]
    NodeLost {
        /// The machine's name.
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
        /// Its own words.
        excerpt: Excerpt,
    },
    /// The engine's answer is not what it should be.
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
    /// A tar was refused or broke off.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// Why a machine, or the engine on it, is not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionFault {
    /// The address is not one: the reason.
    Address(&'static str),
    /// There is no `ssh` here.
    NoProgram,
    /// The machine's key is unknown, or is another one than before.
    HostKey,
    /// It accepts no key of this person.
    Login,
    /// It does not answer.
    Unreachable,
    /// The engine's socket is there and connections to it fail: nothing listens at it, or the machine forwards none.
    NotForwarded,
    /// There is no socket of an engine.
    NoEngine,
    /// The person there may not use the socket.
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

/// Something an engine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// Give a GPU to a container.
    Gpu,
    /// The supervisor inside.
    Guest,
    /// Share the host's network.
    HostNetwork,
    /// Keep the members of one network apart.
    PartedNetwork,
    /// Bring up stacks of services.
    Compose,
    /// Run the health check of the image.
    HealthCheck,
    /// A root that is read-only, with a guest that is put in as a copy.
    ReadOnlyRoot,
    /// Make an image of a container.
    Commit,
    /// Make an image by a Dockerfile.
    Build,
    /// Publish ports on the host.
    Publish,
    /// Lines of the hosts file.
    HostEntries,
    /// Freeze a container.
    Pause,
    /// Report events of containers.
    Events,
    /// Limit the processes of a container.
    PidsLimit,
    /// Give a part of a core.
    FractionalCpus,
    /// Limit swap apart from memory.
    SwapLimit,
    /// Keep programs from gaining privileges. Where the engine lacks it, the guest does it.
    NoNewPrivileges,
    /// Filter system calls. Where the engine lacks it, each container has a kernel of its own.
    Seccomp,
    /// Start containers again by itself.
    RestartPolicy,
    /// Copy tars in and out, with the owners that they name.
    CopyTar,
    /// Map the person to a user inside.
    KeepId,
    /// Have users of its own in each container.
    UserNamespace,
    /// Have users beside root in a container.
    OtherUsers,
    /// Reach other machines from a container.
    OutgoingNetwork,
    /// Join containers by networks with names.
    NamedNetwork,
    /// Copy a container without an image between the two.
    Fork,
    /// Make containers by a runtime of the Open Container Initiative.
    OciRuntime,
    /// Mount a directory of this machine.
    Bind,
    /// Start a container again that was stopped.
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
            Self::KeepId => ("keep_id", "mapping the person to a user inside"),
            Self::OtherUsers => ("other_users", "users beside root without subordinate ids of this account"),
            Self::UserNamespace => ("user_namespace", "users of its own"),
            Self::OutgoingNetwork => ("outgoing_network", "outgoing traffic of a container"),
            Self::NamedNetwork => ("named_network", "networks that several containers share"),
            Self::Fork => ("fork", "a copy of a container without an image"),
            Self::OciRuntime => ("oci_runtime", "containers of an OCI runtime without root"),
            Self::Bind => ("bind", "mounting a directory of this machine"),
            Self::Restart => ("restart", "starting a container again that was stopped"),
        }
    }

    /// Capabilities that an engine lacks whatever its version and configuration.
    #[must_use]
    pub fn lacked_by(engine: EngineKind) -> &'static [Self] {
        match engine {
            EngineKind::Docker | EngineKind::Podman | EngineKind::Fake => &[Self::Fork],
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
            ],
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)
    }
}

/// The engine's own words: at most 4 KiB, control characters escaped, user parts of URLs blanked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt(String);

impl Excerpt {
    const MAX_BYTES: usize = 4096;

    /// Takes the end of what an engine printed: the reason stands last.
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
        f.write_str(if self.0.is_empty() { "it gave no reason" } else { &self.0 })
    }
}

fn without_url_users(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        kept.push_str(before);
        let host_ends = after.find(|c: char| c == '/' || c.is_whitespace() || c == '"').unwrap_or(after.len());
        let host_begins = after[..host_ends].rfind('@').map_or(0, |at| at + 1);
        rest = &after[host_begins..];
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::Excerpt;

    #[test]
    fn an_excerpt_holds_no_password_of_a_url_and_no_control_characters() {
        let excerpt = Excerpt::from_bytes(b"pull of https://me:hunter2@registry/x failed\x1b[31m\n");
        assert_eq!(excerpt.as_str(), "pull of https://registry/x failed\\u{1b}[31m");
    }

    #[test]
    fn an_excerpt_is_short_and_keeps_the_end() {
        let excerpt = Excerpt::from_bytes(&[&[b'x'; 100_000][..], b"the reason"].concat());
        assert!(excerpt.as_str().len() <= 4096 && excerpt.as_str().ends_with("the reason"));
    }
}

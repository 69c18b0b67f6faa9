//! Errors of the engine, with hints.

use coracle_archive::transfer;
use coracle_protocol::ErrorCode;
use coracle_types::{Capability, ConnectionFault, EngineKind, Error, Excerpt, StoredFileError};

use super::{Code, Failure};

impl From<Error> for Failure {
    fn from(err: Error) -> Self {
        if let Error::Host { source, .. } = &err
            && let Some(file) = StoredFileError::newer_file(source)
        {
            return Self::newer_version(sentence(&err)).detail("file", file);
        }
        if let Error::Host { source, .. } = &err
            && super::is_full(source)
        {
            return Self::host_disk_full(sentence(&err));
        }
        let failure = Self::new(code(&err), sentence(&err));
        match err {
            Error::NotInstalled { program } => failure.detail("engine", program).hint_for(INSTALL, YOU_INSTALL),
            Error::NotBuiltIn { engine } => failure.detail("engine", engine).hint_setting(NOT_BUILT_IN, "engine"),
            Error::Unavailable { engine, denied, excerpt } => {
                let failure = failure.detail("engine", engine).detail("engine_error", excerpt.as_str());
                match (engine, denied) {
                    (_, true) => failure.hint(DENIED),
                    (EngineKind::Container, false) => failure.hint_for(APPLE_DOWN, YOU_START_APPLE),
                    (EngineKind::Kubernetes, false) => failure.hint(CLUSTER_DOWN),
                    _ => failure.hint(DOWN),
                }
            }
            Error::NotConnected { engine, endpoint, fault, excerpt } => {
                let failure = failure.detail("engine", engine).detail("endpoint", endpoint);
                failure.detail("reason", fault.word()).detail("ssh_error", excerpt.as_str()).hint(connect(fault))
            }
            Error::TooOld { engine, found, needed } => failure
                .detail("engine", engine)
                .detail("found", found)
                .detail("needed", needed)
                .hint_setting(TOO_OLD, "engine"),
            Error::NotEncodable { value, .. } => {
                failure.detail("value", value).hint("use a path or name without the characters that the message names")
            }
            Error::CleanupFailed { name, excerpt } => failure
                .detail("name", name)
                .detail("engine_error", excerpt.as_str())
                .hint("it is tried again when containers are next swept; `status` shows whether it is there"),
            Error::NoSuchContainer(name) => {
                failure.detail("kind", "container").detail("name", name).hint("`list` shows the containers there are")
            }
            Error::NotRunning { status, exit_code, oom_killed, .. } => failure
                .detail("status", status)
                .detail("exit_code", exit_code)
                .detail("oom_killed", oom_killed)
                .hint_stopped(StoppedContainer { name: "NAME", engine: None, oom_killed }),
            Error::LifetimeOver { limit } => {
                failure.detail("limit_s", limit.as_secs()).hint_setting(LIFETIME_OVER, "kubernetes.max_lifetime")
            }
            Error::NameTaken(_) => {
                failure.detail("kind", "container").hint("leave `name` out to get a fresh one, or choose another")
            }
            Error::NetworkTaken(_) => failure.detail("kind", "network").hint("choose another name"),
            Error::PortTaken(port) => failure.detail("port", port).hint("leave `host` out to get a free port"),
            Error::PullFailed { image, excerpt } => failure
                .detail("image", image)
                .detail("stage", "pull")
                .detail("engine_error", excerpt.as_str())
                .hint_for(
                    format!("check the name and the network, or use an image that is already on this machine; {LOAD}"),
                    format!(
                        "check the name and the network, log in to a private registry, or use an image that is already on \
                         this machine; {LOAD}"
                    ),
                ),
            Error::NoSuchPath(path) => {
                failure.detail("path", path).detail("side", "container").hint("list the directory above it with `exec`")
            }
            Error::NoShell => {
                failure.hint("the image has no `/bin/sh`: give the command as a list of words, or choose another image")
            }
            Error::Unsupported { engine, capability } => {
                let (failure, hint) = (failure.detail("capability", capability.word()), without(capability));
                match engine == EngineKind::Embedded && is_of_other_engines(capability) {
                    true => failure.hint_for(
                        format!("{hint}; Docker or Podman may have it, which only the user can choose, by `engine`"),
                        format!("{hint}; or use an engine that has it: `--engine podman` or `--engine docker`"),
                    ),
                    false => failure.hint(hint),
                }
            }
            Error::Forbidden { engine, verb, excerpt } => {
                failure.detail("engine", engine).detail("verb", verb).detail("engine_error", excerpt.as_str()).hint(
                    "`preflight` lists the rights that are missing; docs/kubernetes.md has the Role that grants them",
                )
            }
            Error::QuotaExceeded { engine, excerpt } => {
                failure.detail("engine", engine).detail("engine_error", excerpt.as_str()).hint(
                    "`destroy` containers that are not needed, ask for less memory or fewer cores, or raise the quota",
                )
            }
            Error::AdmissionDenied { engine, excerpt } => failure
                .detail("engine", engine)
                .detail("engine_error", excerpt.as_str())
                .hint("`details.engine_error` names the rule: change the request, or ask the cluster's administrator"),
            Error::Unschedulable { excerpt } => failure
                .detail("engine_error", excerpt.as_str())
                .hint("ask for less memory or fewer cores, `destroy` others, or check `kubernetes.node_selector`"),
            Error::WarmPool { pool, reason } => {
                failure.detail("pool", pool).detail("reason", reason).hint_setting(WARM_POOL, "kubernetes.warm_pool")
            }
            Error::NodeLost { node, reason } => failure
                .detail("node", node)
                .detail("reason", reason)
                .hint("its work may come back with the node; `destroy` it and `create` another to go on at once"),
            Error::TimedOut { verb, after } => failure
                .detail("verb", verb)
                .detail("after_s", after.as_secs())
                .hint("see with `status` or `list` what has become of it, then try again"),
            Error::Engine { verb, excerpt, .. } => failure
                .detail("verb", verb)
                .detail("engine_error", excerpt.as_str())
                .hint("`details.engine_error` has the engine's own words; `preflight` checks the engine"),
            Error::Unreadable { verb, .. } => {
                failure.detail("verb", verb).hint("`preflight` shows whether this version of the engine is known")
            }
            Error::NoSuchJob(job) => failure
                .detail("job_id", job)
                .hint("`jobs` shows the jobs there are; one that ended long ago, or before a restart, is forgotten"),
            Error::MountChanged { targets } => failure.detail("targets", targets).hint(MOUNT_CHANGED),
            Error::GuestFailed { reason } => failure.detail("reason", reason).hint(GUEST_FAILED),
            Error::GuestVersion { guest, host } => {
                failure.detail("guest_version", guest).detail("version", host).hint(OTHER_VERSION)
            }
            Error::FilesRemoved { missing } => failure.detail("missing", missing).hint(FILES_REMOVED),
            Error::GuestLost { reason, .. } => failure
                .detail("reason", reason)
                .hint("see with `status` whether the container runs, and with `jobs` what became of the command"),
            Error::Refused(fault) => failure.detail("about", &fault.about).hint(for_fault(fault.code)),
            Error::TooLarge { .. } => failure.hint_setting("copy less at once", "copy.max_bytes"),
            Error::Archive(err) => for_archive(failure, &err),
            Error::Spawn { .. } => failure.hint("`preflight` checks the engine's program"),
            _ => failure,
        }
    }
}

const INSTALL: &str = "ask the user to run `coracle setup`, which installs an engine; then call `preflight`";
const YOU_INSTALL: &str = "run `coracle setup`, which installs an engine, or install Podman or Docker yourself";
const DENIED: &str = "this user may not talk to the engine; `preflight` says how to change that";
const DOWN: &str = "`preflight` says how to start it";
const APPLE_DOWN: &str = "ask the user to run `container system start`, then try again";
const YOU_START_APPLE: &str = "run `container system start`, then try again";
const OTHER_VERSION: &str = "the container was made by another version of coracle: use that version for it, or `destroy` it, \
     which saves its work, and `create` another";
const MOUNT_CHANGED: &str = "a link, or nothing, is in the place of a mounted host directory; look at it on the host and put \
     the directory back, or `destroy` the container, which saves its work";
const GUEST_FAILED: &str = "try once more; if it fails again, `destroy` the container and `create` another: code inside may \
     have replaced what the guest needs";
const FILES_REMOVED: &str = "nothing can run in it any more; `destroy` it and `create` another. What `destroy` saved \
     before is kept, and a directory of the host that was mounted has lost what was removed in it";
const WARM_POOL: &str = "docs/kubernetes.md says what a pool needs; without the setting each container has its own Pod";
const LIFETIME_OVER: &str = "`destroy` it and `create` another; one with `persistent` has no such limit";
const CLUSTER_DOWN: &str =
    "check `kubernetes.kubeconfig` and `kubernetes.context`, and that this machine reaches the API server";
const NOT_BUILT_IN: &str = "build it with `cargo build --features kubernetes`, or choose another engine";
const TOO_OLD: &str = "update it";

/// A stopped container, for a hint.
#[derive(Clone, Copy, Debug)]
pub struct StoppedContainer<'a> {
    pub name: &'a str,
    /// Unset if it is not known.
    pub engine: Option<EngineKind>,
    pub oom_killed: bool,
}

impl StoppedContainer<'_> {
    fn starts_again(self) -> bool {
        self.engine.is_none_or(|it| !Capability::lacked_by(it).contains(&Capability::Restart))
    }
}

impl Failure {
    /// The hint for a stopped container: users start it again if its engine can, agents create another.
    pub fn hint_stopped(self, stopped: StoppedContainer<'_>) -> Self {
        let StoppedContainer { name, oom_killed, .. } = stopped;
        let (more, option) = match oom_killed {
            true => ("it ran out of memory; ", "; more memory takes a new one: `coracle create --memory-limit 8g`"),
            false => ("", ""),
        };
        let larger = if oom_killed { " with a higher `memory_limit`" } else { "" };
        if !stopped.starts_again() {
            return self.hint(format!(
                "{more}`destroy` it and `create` another{larger}: this engine starts no container again, and its files \
                 ended with it, but for those of volumes"
            ));
        }
        self.hint_for(
            format!(
                "{more}`destroy` it, which saves its work, and `create` another{larger}; only the user can start it \
                 again: `coracle start {name}`"
            ),
            format!("{more}`coracle start {name}` starts it again{option}"),
        )
    }
}

/// Returns the code of an engine's error.
pub fn code(err: &Error) -> Code {
    match err {
        Error::NotInstalled { .. }
        | Error::NotBuiltIn { .. }
        | Error::Unavailable { .. }
        | Error::NotConnected { .. }
        | Error::WarmPool { .. } => Code::EngineUnavailable,
        Error::TooOld { .. } => Code::EngineTooOld,
        Error::Forbidden { .. } | Error::AdmissionDenied { .. } => Code::EngineDenied,
        Error::QuotaExceeded { .. } | Error::Unschedulable { .. } => Code::QuotaExceeded,
        Error::NodeLost { .. } => Code::NodeLost,
        Error::MountChanged { .. } => Code::MountChanged,
        Error::NotEncodable { .. } => Code::PathNotEncodable,
        Error::CleanupFailed { .. } => Code::CleanupFailed,
        Error::NoSuchContainer(_) => Code::NotFound,
        Error::NotRunning { .. } | Error::LifetimeOver { .. } => Code::NotRunning,
        Error::NameTaken(_) | Error::NetworkTaken(_) => Code::NameTaken,
        Error::PortTaken(_) => Code::PortTaken,
        Error::PullFailed { .. } => Code::PullFailed,
        Error::NoSuchPath(_) => Code::PathNotFound,
        Error::NoShell => Code::NoShell,
        Error::TooLarge { .. } | Error::Archive(_) => Code::CopyFailed,
        Error::Unsupported { .. } => Code::Unsupported,
        Error::TimedOut { .. } => Code::EngineTimeout,
        Error::NoSuchJob(_) => Code::JobNotFound,
        Error::GuestFailed { .. } | Error::GuestVersion { .. } => Code::GuestFailed,
        Error::FilesRemoved { .. } => Code::FilesRemoved,
        Error::GuestLost { .. } => Code::GuestLost,
        Error::Refused(fault) => of_fault(fault.code),
        Error::Host { source, .. } if StoredFileError::newer_file(source).is_some() => Code::NewerVersion,
        Error::Host { source, .. } if super::is_full(source) => Code::DiskFull,
        Error::Engine { .. } | Error::Unreadable { .. } | Error::Spawn { .. } => Code::EngineFailed,
        _ => Code::Internal,
    }
}

/// Returns one sentence. The engine's output, which may be long, is only in `details`.
fn sentence(err: &Error) -> String {
    match err {
        Error::Unavailable { engine, denied: true, .. } => format!("{engine} refuses this user"),
        Error::Unavailable { engine, .. } => format!("{engine} does not answer"),
        Error::PullFailed { image, excerpt } => match last_line(excerpt) {
            Some(cause) => format!("image `{image}` could not be pulled: {cause}"),
            None => format!("image `{image}` could not be pulled"),
        },
        Error::Engine { verb, exit, excerpt } => match last_line(excerpt) {
            Some(last) => format!("`{verb}` failed (exit {exit}): {last}"),
            None => format!("`{verb}` failed (exit {exit})"),
        },
        Error::Archive(transfer::Error::Io { path, source }) => {
            format!("cannot copy `{}`: {source}", path.escape_debug())
        }
        Error::Host { what, source } => format!("{what}: {source}"),
        Error::Spawn { program, source } => format!("cannot start `{program}`: {source}"),
        other => other.to_string(),
    }
}

/// Returns the last line, where engines print the reason.
fn last_line(excerpt: &Excerpt) -> Option<&str> {
    excerpt.as_str().lines().rfind(|it| !it.trim().is_empty())
}

/// Returns the hint for an engine's host that cannot be reached.
fn connect(fault: ConnectionFault) -> &'static str {
    match fault {
        ConnectionFault::Address(_) => "write `engine_host = \"ssh://user@host:port/path/of/the.sock\"`",
        ConnectionFault::NoProgram => "install the client of OpenSSH",
        ConnectionFault::HostKey => {
            "compare its key, and connect once with `ssh` yourself so that it is known; nothing is sent to an unknown machine"
        }
        ConnectionFault::Login => {
            "`ssh` to it without a password has to work: load the key into an agent, or name it in `engine_ssh_config`"
        }
        ConnectionFault::Unreachable => "check host and port, and whether `ssh` to it works from here",
        ConnectionFault::NotForwarded => {
            "start the engine there, and see that its `sshd_config` has `AllowStreamLocalForwarding yes`"
        }
        ConnectionFault::NoEngine => "start the engine there, or name the path of its socket in `engine_host`",
        ConnectionFault::Denied => "log in as a user who may use the engine, such as a member of the group `docker`",
        _ => "`details.ssh_error` has the words of `ssh`",
    }
}

/// Whether another engine on the host may have what the embedded one lacks, which `auto` may have chosen.
fn is_of_other_engines(capability: Capability) -> bool {
    use Capability::{Build, Compose, Events, Gpu, NamedNetwork, OtherUsers, OutgoingNetwork, RestartPolicy};
    matches!(capability, Build | Compose | Events | Gpu | NamedNetwork | OtherUsers | OutgoingNetwork | RestartPolicy)
}

/// How to load an image of another engine into the embedded one.
pub(super) const LOAD: &str = "`coracle images load IMAGE --from docker` (or `podman`) gives one of Docker or Podman to the \
                               embedded engine";

fn without(capability: Capability) -> &'static str {
    match capability {
        Capability::Gpu => "leave `gpu` out; `preflight` shows what the engine can give",
        Capability::HealthCheck => {
            "nothing runs an image's own health check in this container: say `health_command` or `port`"
        }
        Capability::HostNetwork => "leave `network` out",
        Capability::ReadOnlyRoot => "set `workspace.read_only_root` to false in the configuration",
        Capability::PartedNetwork => "say `network: \"none\"`, or name a network of your own",
        Capability::Publish => "leave `ports` out; `forward` reaches a port where the container has a guest",
        Capability::OutgoingNetwork => "install the package `passt` (or `slirp4netns`), or say `network: \"none\"`",
        Capability::OciRuntime => "run as root, or leave `engine_runtime` out",
        Capability::NamedNetwork => "leave `network` out, or run as root",
        Capability::OtherUsers => {
            "leave `user` out: commands run as root inside, who is you outside; or add subordinate ids, as `preflight` says"
        }
        Capability::HostEntries => {
            "give addresses in `add_hosts`, in place of `host-gateway`; where those are refused, too, leave it out"
        }
        Capability::Bind => "leave `mount_cwd` and `mounts` out, and `copy_in` what the container shall have",
        Capability::Restart => {
            "`destroy` it, which saves the work of one that runs, and `create` another; one that has ended has lost its files"
        }
        _ => "`preflight` shows what this engine can do",
    }
}

fn of_fault(code: ErrorCode) -> Code {
    match code {
        ErrorCode::Invalid | ErrorCode::TooLong => Code::InvalidInput,
        ErrorCode::NoDirectory | ErrorCode::NotFound | ErrorCode::NoProgram => Code::PathNotFound,
        ErrorCode::Exists => Code::PathExists,
        ErrorCode::NoShell => Code::NoShell,
        ErrorCode::NoUser => Code::UserNotFound,
        ErrorCode::NoJob => Code::JobNotFound,
        ErrorCode::TooMany => Code::LimitReached,
        ErrorCode::Busy | ErrorCode::Locked => Code::Busy,
        ErrorCode::Unsupported => Code::Unsupported,
        ErrorCode::FilesRemoved => Code::FilesRemoved,
        ErrorCode::Denied | ErrorCode::WrongKind | ErrorCode::Io => Code::CopyFailed,
        ErrorCode::JobTaken | ErrorCode::CannotStart | ErrorCode::Other => Code::GuestFailed,
    }
}

fn for_fault(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::TooLong => "give the data as `stdin`, or `copy_in` a file and name it",
        ErrorCode::CannotStart => "perhaps too many processes run in the container; see with `exec` of `ps`, or `jobs`",
        ErrorCode::Busy | ErrorCode::Locked => "wait until a call has ended, then try again",
        ErrorCode::Unsupported => OTHER_VERSION,
        ErrorCode::FilesRemoved => FILES_REMOVED,
        ErrorCode::NoShell => "give the command as a list of words, which needs no shell",
        ErrorCode::NoProgram => "check the program's name; `exec` of `command -v NAME` shows whether the image has it",
        _ => "correct what the message names",
    }
}

fn for_archive(failure: Failure, err: &transfer::Error) -> Failure {
    match err {
        transfer::Error::TooMany(_) => failure.hint_setting("copy less at once", "copy.max_entries"),
        transfer::Error::TooLarge(_) => failure.hint_setting("copy less at once", "copy.max_bytes"),
        _ => failure
            .hint("new files of this copy were removed again; check that source and target can be read and written"),
    }
}

#[cfg(test)]
mod tests {
    use coracle_protocol::RpcError;
    use coracle_types::{ContainerStatus, Error, Excerpt, ImageRef};

    use super::{EngineKind, ErrorCode, Failure};

    fn check(err: impl Into<Failure>, code: &str, message: &str, hint: &str) {
        let failure: Failure = err.into();
        let failure = failure.into_inner();
        let failure = (failure.code.word(), failure.message, failure.hint.unwrap_or_default());
        assert_eq!((failure.0.as_str(), failure.1.as_str()), (code, message));
        assert!(failure.2.contains(hint), "{}", failure.2);
    }

    #[test]
    fn engine_errors_have_a_code_and_a_hint() {
        let (engine, excerpt) = (EngineKind::Docker, Excerpt::from_bytes(b"line one\nno space left"));
        check(
            Error::NotInstalled { program: "podman".into() },
            "engine_unavailable",
            "no `podman` program was found",
            "coracle setup",
        );
        check(
            Error::Unavailable { engine, denied: true, excerpt: excerpt.clone() },
            "engine_unavailable",
            "docker refuses this user",
            "preflight",
        );
        check(
            Error::Engine { verb: "create", exit: 125, excerpt },
            "engine_failed",
            "`create` failed (exit 125): no space left",
            "engine_error",
        );
        let lookup = Excerpt::from_bytes(b"Using default tag\nError: Get \"x\": dial tcp: lookup x: no such host\n");
        check(
            Error::PullFailed { image: ImageRef::parse("python:3").unwrap(), excerpt: lookup },
            "pull_failed",
            "image `python:3` could not be pulled: Error: Get \"x\": dial tcp: lookup x: no such host",
            "already on this machine",
        );
        let stopped =
            Error::NotRunning { status: ContainerStatus::Exited, exit_code: Some(137), oom_killed: true, output: None };
        check(stopped, "not_running", "container is not running (status `exited`)", "memory_limit");
        let limit = std::time::Duration::from_secs(604_800);
        let message = "the container was ended after 604800 s, the longest that one may run";
        check(Error::LifetimeOver { limit }, "not_running", message, "persistent");
        let gone = Error::FilesRemoved { missing: "the socket of the guest was removed".into() };
        let message = "the container's own files were removed from inside, as `rm -rf /` does: the socket of the guest was removed";
        check(gone, "files_removed", message, "`destroy` it and `create` another");
        let message = "the guest in the container speaks version 2 of the protocol, this program version 1";
        check(Error::GuestVersion { guest: 2, host: 1 }, "guest_failed", message, "another version of coracle");
        let unsupported = RpcError::new(ErrorCode::Unsupported, "this guest does not support that call");
        check(
            Error::Refused(unsupported),
            "unsupported",
            "this guest does not support that call",
            "another version of coracle",
        );
        let fault = RpcError::new(ErrorCode::NoProgram, "cannot run the command: not found in the container");
        let message = fault.message.clone();
        check(Error::Refused(fault), "path_not_found", &message, "check the program's name");
    }
}

//! Builds the command lines of OCI runtimes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::oci_runtime::OciRuntime;

/// Files and directories that a runtime uses for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimePaths {
    /// The runtime's state of all its containers.
    pub(crate) state: PathBuf,
    /// The directory of `config.json`.
    pub(crate) bundle: PathBuf,
    /// The runtime's log, one JSON object per line.
    pub(crate) log: PathBuf,
}

/// The network of a container with its own kernel, such as gVisor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeNetwork {
    /// Only loopback, inside its own kernel.
    Loopback,
    /// Sockets of the host's kernel, in the network namespace that the bundle names.
    OfNamespace,
}

/// A container that an OCI runtime runs.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeContainer {
    pub(crate) runtime: OciRuntime,
    pub(crate) paths: RuntimePaths,
    pub(crate) network: RuntimeNetwork,
    pub(crate) id: String,
}

/// A subcommand of the runtime.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb<'a> {
    Create,
    Start,
    State,
    Delete,
    Pause,
    Resume,
    /// Starts the process that the file `process` describes. `pid_file` gets its PID inside the container.
    Exec {
        process: &'a Path,
        pid_file: &'a Path,
    },
    /// Kills one process by its PID inside the container.
    KillProcess {
        pid: u32,
    },
}

/// The arguments after the program's name.
pub(super) fn arguments(container: &RuntimeContainer, verb: Verb<'_>) -> Vec<OsString> {
    let RuntimeContainer { runtime, paths, network, id } = container;
    let mut words = vec!["--root".into(), paths.state.clone().into(), "--log".into(), paths.log.clone().into()];
    words.extend(["--log-format", "json"].map(OsString::from));
    if runtime.has_own_kernel() {
        let network = match network {
            RuntimeNetwork::Loopback => "--network=none",
            RuntimeNetwork::OfNamespace => "--network=host",
        };
        // The engine reads and writes files of a running container, so gVisor must not cache them. Code inside may create
        // sockets in bound directories (the guest's link is one), but may not connect to the host's sockets.
        words.extend([network, "--file-access=shared", "--host-uds=create"].map(OsString::from));
    }
    match verb {
        Verb::Create => words.extend(["create".into(), "--bundle".into(), paths.bundle.clone().into()]),
        Verb::Start => words.push("start".into()),
        Verb::State => words.push("state".into()),
        Verb::Delete => words.extend(["delete", "--force"].map(OsString::from)),
        Verb::Pause => words.push("pause".into()),
        Verb::Resume => words.push("resume".into()),
        Verb::Exec { process, pid_file } => {
            words.extend(["exec".into(), "--process".into(), process.into()]);
            words.extend(["--internal-pid-file".into(), pid_file.into()]);
        }
        Verb::KillProcess { pid } => {
            words.extend(["kill".into(), "--pid".into(), pid.to_string().into(), id.into(), "KILL".into()]);
            return words;
        }
    }
    words.push(id.into());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(runtime: OciRuntime, network: RuntimeNetwork, verb: Verb<'_>) -> String {
        let paths = RuntimePaths { state: "/s".into(), bundle: "/b".into(), log: "/l".into() };
        let words = arguments(&RuntimeContainer { runtime, paths, network, id: "id".into() }, verb);
        words.iter().map(|it| it.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_runtime_has_its_command_line() {
        let common = "--root /s --log /l --log-format json";
        let own = "--file-access=shared --host-uds=create";
        let process = Verb::Exec { process: "/p".as_ref(), pid_file: "/n".as_ref() };
        for (runtime, network, verb, expected) in [
            (OciRuntime::Crun, RuntimeNetwork::OfNamespace, Verb::Create, format!("{common} create --bundle /b id")),
            (OciRuntime::Runc, RuntimeNetwork::Loopback, Verb::Delete, format!("{common} delete --force id")),
            (
                OciRuntime::Runsc,
                RuntimeNetwork::Loopback,
                Verb::Start,
                format!("{common} --network=none {own} start id"),
            ),
            (
                OciRuntime::Runsc,
                RuntimeNetwork::OfNamespace,
                process,
                format!("{common} --network=host {own} exec --process /p --internal-pid-file /n id"),
            ),
            (
                OciRuntime::Runsc,
                RuntimeNetwork::Loopback,
                Verb::KillProcess { pid: 7 },
                format!("{common} --network=none {own} kill --pid 7 id KILL"),
            ),
        ] {
            assert_eq!(line(runtime, network, verb), expected);
        }
    }
}

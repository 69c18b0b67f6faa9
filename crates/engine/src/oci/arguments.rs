//! The command lines of the runtimes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::oci_runtime::OciRuntime;

/// Files and directories of one container's runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimePaths {
    /// What the runtime remembers of all its containers.
    pub(crate) state: PathBuf,
    /// The directory of `config.json`.
    pub(crate) bundle: PathBuf,
    /// Its errors, one JSON object a line.
    pub(crate) log: PathBuf,
}

/// What a container with a kernel of its own has of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeNetwork {
    /// Loopback, within its kernel.
    Loopback,
    /// Sockets of the host's kernel in the namespace that the bundle names.
    OfNamespace,
}

/// A container of a runtime.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeContainer {
    pub(crate) runtime: OciRuntime,
    pub(crate) paths: RuntimePaths,
    pub(crate) network: RuntimeNetwork,
    pub(crate) id: String,
}

/// A command of the runtime.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb<'a> {
    Create,
    Start,
    State,
    Delete,
    Pause,
    Resume,
    /// A process by its description; the file gets its number in the container.
    Exec {
        process: &'a Path,
        pid_file: &'a Path,
    },
    /// Ends one process by its number in the container.
    KillProcess {
        pid: u32,
    },
}

/// Words after the program.
pub(super) fn arguments(container: &RuntimeContainer, verb: Verb<'_>) -> Vec<OsString> {
    let RuntimeContainer { runtime, paths, network, id } = container;
    let mut words = vec!["--root".into(), paths.state.clone().into(), "--log".into(), paths.log.clone().into()];
    words.extend(["--log-format", "json"].map(OsString::from));
    if runtime.has_own_kernel() {
        let network = match network {
            RuntimeNetwork::Loopback => "--network=none",
            RuntimeNetwork::OfNamespace => "--network=host",
        };
        // The engine reads and writes files of a container that runs, so its kernel may not keep them to itself. Code
        // inside may make sockets in directories of the host (the guest's link is one), and reach none that is there.
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
    fn each_runtime_has_its_line() {
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

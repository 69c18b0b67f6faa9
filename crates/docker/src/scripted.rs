//! Engines that are scripts, for what real ones do once in a hundred times.

use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use coracle_engine_program::{ApiUse, EngineSettings};
use coracle_host::registry_login::LoginFiles;
use tempfile::TempDir;

use super::{CliRuntime, Dialect};

/// The directory of a script. The socket in it takes connections, as that of a running daemon does.
pub(crate) struct ScriptDir {
    dir: TempDir,
    _daemon: UnixListener,
}

impl Deref for ScriptDir {
    type Target = TempDir;

    fn deref(&self) -> &TempDir {
        &self.dir
    }
}

pub(crate) fn docker(script: &str) -> (CliRuntime, ScriptDir) {
    engine(Dialect::Docker, script, ApiUse::Never, LoginFiles::default())
}

pub(crate) fn podman(script: &str) -> (CliRuntime, ScriptDir) {
    engine(Dialect::Podman, script, ApiUse::Never, LoginFiles::default())
}

pub(crate) fn docker_with_api(script: &str, socket: &Path) -> (CliRuntime, ScriptDir) {
    engine(Dialect::Docker, script, ApiUse::At(socket.to_owned()), LoginFiles::default())
}

pub(crate) fn podman_with_api(script: &str, socket: &Path) -> (CliRuntime, ScriptDir) {
    engine(Dialect::Podman, script, ApiUse::At(socket.to_owned()), LoginFiles::default())
}

/// With logins of a person.
pub(crate) fn docker_with_logins(script: &str, logins: LoginFiles) -> (CliRuntime, ScriptDir) {
    engine(Dialect::Docker, script, ApiUse::Never, logins)
}

/// Runs a script as the engine's program, with `TMPDIR` for its own files.
fn engine(dialect: Dialect, script: &str, api: ApiUse, logins: LoginFiles) -> (CliRuntime, ScriptDir) {
    let temp = tempfile::tempdir().unwrap();
    let program = temp.path().join("engine");
    std::fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let dir = || temp.path().to_owned();
    let (program, home, config_dir, temp_dir) = (Some(program), dir(), dir(), dir());
    let socket = temp.path().join("daemon.sock");
    let daemon = UnixListener::bind(&socket).unwrap();
    // Podman has no daemon: an endpoint would make it a remote one.
    let endpoint = matches!(dialect, Dialect::Docker).then(|| format!("unix://{}", socket.display()));
    let settings = EngineSettings {
        program,
        endpoint,
        config_dir,
        home,
        runtime_dir: None,
        temp_dir,
        api,
        ssh_config: None,
        ssh_agent: None,
        logins,
    };
    (CliRuntime::connect(dialect, &settings).unwrap(), ScriptDir { dir: temp, _daemon: daemon })
}

//! Engines that are scripts, for what real ones do once in a hundred times.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use super::{CliRuntime, Dialect};
use crate::program::{ApiUse, EngineSettings};

pub(crate) fn docker(script: &str) -> (CliRuntime, TempDir) {
    engine(Dialect::Docker, script, ApiUse::Never)
}

pub(crate) fn podman(script: &str) -> (CliRuntime, TempDir) {
    engine(Dialect::Podman, script, ApiUse::Never)
}

pub(crate) fn docker_with_api(script: &str, socket: &Path) -> (CliRuntime, TempDir) {
    engine(Dialect::Docker, script, ApiUse::At(socket.to_owned()))
}

pub(crate) fn podman_with_api(script: &str, socket: &Path) -> (CliRuntime, TempDir) {
    engine(Dialect::Podman, script, ApiUse::At(socket.to_owned()))
}

/// In a directory of its own, which the script knows as `TMPDIR`.
fn engine(dialect: Dialect, script: &str, api: ApiUse) -> (CliRuntime, TempDir) {
    let temp = tempfile::tempdir().unwrap();
    let program = temp.path().join("engine");
    std::fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let dir = || temp.path().to_owned();
    let (program, home, config_dir, temp_dir) = (Some(program), dir(), dir(), dir());
    let settings = EngineSettings { program, endpoint: None, config_dir, home, runtime_dir: None, temp_dir, api };
    (CliRuntime::connect(dialect, &settings).unwrap(), temp)
}

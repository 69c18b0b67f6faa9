//! Host paths of a call: from text to an open handle that the policy allows.

use std::path::{Path, PathBuf};

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_host::fs::HostPath;
use coracle_lifecycle::{CopyLimits, CopyMeter, CopyRequest, Record};
use coracle_runtime::PolicyRefusal;
use coracle_types::ContainerPath;

/// `~/…` is below the home directory, and a relative path is below the working directory.
pub fn host_path(text: &str, cx: &Context) -> PathBuf {
    match text.strip_prefix("~/") {
        Some(rest) => cx.host.home.join(rest),
        None => cx.config.working_dir(&cx.host).join(text),
    }
}

/// A path in a container: `~/…` is below the home of its user, and a relative path is below the work directory.
pub fn container_path(text: &str, record: &Record) -> Result<ContainerPath, Failure> {
    Ok(match (text.strip_prefix("~/"), &record.home) {
        (Some(rest), Some(home)) => home.join(rest)?,
        _ => record.workdir.join(text)?,
    })
}

/// Opens a host path for a mount.
pub fn mountable(path: &Path, cx: &Context) -> Result<HostPath, Failure> {
    allowed(path, "mount", cx)
}

/// Opens a host path for a copy.
pub fn copyable(path: &Path, cx: &Context) -> Result<HostPath, Failure> {
    allowed(path, "copy", cx)
}

fn allowed(path: &Path, act: &'static str, cx: &Context) -> Result<HostPath, Failure> {
    let opened = HostPath::open(path).map_err(coracle_lifecycle::Error::from)?;
    match cx.policy()?.host_path_problem(act, opened.real()) {
        Some(problem) => Err(PolicyRefusal { problems: vec![problem] }.into()),
        None => Ok(opened),
    }
}

/// Builds a copy request within the configured limits, which replaces no file.
pub fn copy_request(cx: &Context, host: HostPath, container: ContainerPath) -> Result<CopyRequest, Failure> {
    Ok(CopyRequest {
        host,
        host_name: None,
        container,
        into_directory: false,
        overwrite: false,
        limits: CopyLimits { max_bytes: cx.config.copy.max_bytes.0, max_entries: cx.config.copy.max_entries },
        protected: cx.config.workspace.protected.clone(),
        scratch: cx.state()?.scratch(),
        notes: cx.store()?.unfinished_copies(),
        meter: CopyMeter::default(),
    })
}

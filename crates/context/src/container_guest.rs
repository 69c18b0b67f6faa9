//! Guest and worker of a container, as files for its engine.

use std::path::PathBuf;

use coracle_lifecycle::GuestProgram;
use coracle_runtime::{ContainerRuntime, Image};
use coracle_types::EngineKind;

use crate::config;
use crate::context::Context;
use crate::failure::Failure;
use crate::guest::{embedded, embedded_worker, shares_files, this_arch};

/// Returns the guest for containers of that image, as a file on the host. None if none is built in for the
/// architecture, or the configuration disables guests.
pub fn program(cx: &Context, runtime: &dyn ContainerRuntime, image: &Image) -> Result<Option<GuestProgram>, Failure> {
    program_for(cx, runtime, &image.arch)
}

/// Returns the guest for this host's own architecture.
pub fn of_this_machine(cx: &Context, runtime: &dyn ContainerRuntime) -> Result<Option<GuestProgram>, Failure> {
    program_for(cx, runtime, this_arch())
}

fn program_for(cx: &Context, runtime: &dyn ContainerRuntime, arch: &str) -> Result<Option<GuestProgram>, Failure> {
    if cx.config.guest == config::Guest::Never {
        return Ok(None);
    }
    if runtime.kind() == EngineKind::Fake {
        // The fake runs the guest in this process, so there is no program.
        return Ok(Some(GuestProgram { path: "/".into(), sha256: String::new(), shared_files: true, worker: None }));
    }
    let Some(guest) = embedded(arch) else { return Ok(None) };
    let dir = cx.state()?.root().join("guest");
    let path = guest
        .place(&dir)
        .map_err(|err| Failure::internal(format!("cannot put the guest into `{}`: {err}", dir.display())))?;
    let shared_files = shares_files(runtime);
    Ok(Some(GuestProgram { path, sha256: guest.sha256.to_owned(), shared_files, worker: None }))
}

/// Returns the worker for containers of that image, as a file on the host. None if none is built in for the
/// architecture, and for the fake, which has no files.
pub fn worker(cx: &Context, runtime: &dyn ContainerRuntime, image: &Image) -> Result<Option<PathBuf>, Failure> {
    if runtime.kind() == EngineKind::Fake {
        return Ok(None);
    }
    let Some(worker) = embedded_worker(&image.arch) else { return Ok(None) };
    let dir = cx.state()?.root().join("guest");
    let placed = worker.place(&dir);
    let failed = |err| Failure::internal(format!("cannot put the worker into `{}`: {err}", dir.display()));
    placed.map(Some).map_err(failed)
}

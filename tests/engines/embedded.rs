//! The embedded engine: one data directory for all tests of a run, as an engine on a machine has one.

use std::path::PathBuf;

use coracle_engine::{EmbeddedRuntime, EngineOptions, RegistryOptions};

use super::running::guest_program;
use super::variable;

/// The directory, which `cargo xtask test` removes with the run. Without a run it stays, with the image of most tests.
pub(super) fn data_dir() -> PathBuf {
    let run = variable("CORACLE_TEST_RUN").filter(|it| !it.is_empty());
    run.map_or_else(
        || coracle_skips::of_account("engine"),
        |run| std::env::temp_dir().join(format!("coracle-test-engine-{run}")),
    )
}

pub(super) fn open() -> Result<EmbeddedRuntime, String> {
    open_with(Some(guest_program()))
}

/// The same engine, where the command of a new container is PID 1 itself.
pub(super) fn open_without_guest() -> Result<EmbeddedRuntime, String> {
    open_with(None)
}

fn open_with(guest: Option<PathBuf>) -> Result<EmbeddedRuntime, String> {
    let options = EngineOptions {
        data_dir: data_dir(),
        guest,
        home: PathBuf::from(variable("HOME").unwrap_or("/root".into())),
        registries: RegistryOptions::default(),
    };
    EmbeddedRuntime::open(options).map_err(|err| format!("CORACLE_ENGINES names embedded: {err}"))
}

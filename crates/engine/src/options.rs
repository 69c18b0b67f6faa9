//! What the engine is told when it is opened.

use std::path::PathBuf;

/// The places and programs that an engine uses. Decided once, by the caller: the engine reads no environment.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Images, containers and volumes; the same for all processes that share this engine. Not on an overlay.
    pub data_dir: PathBuf,
    /// The guest's program for this machine: PID 1 of containers that have no guest of their own.
    pub guest: Option<PathBuf>,
    /// The person's home, for the credentials of registries.
    pub home: PathBuf,
    /// Temporary files.
    pub temp_dir: PathBuf,
}

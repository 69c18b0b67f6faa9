//! Engines with a program of their own: which there are, and the first that answers.

use std::sync::Arc;

use coracle_docker::{CliRuntime, Dialect};
use coracle_engine_program::{EngineProgram, EngineSettings, RunsCommands as _};
use coracle_runtime::{ContainerRuntime, EngineInfo, ObservedRuntime};
use coracle_types::{EngineKind, Error, Result};

/// An engine whose calls are spans, and its program for a person's terminal. Asks the engine nothing.
///
/// # Errors
/// [`Error::NotInstalled`], also for an engine that this build has no support for; [`Error::Host`] when its configuration
/// cannot be written.
pub fn connect(kind: EngineKind, settings: &EngineSettings) -> Result<(Arc<dyn ContainerRuntime>, EngineProgram)> {
    let dialect = match kind {
        EngineKind::Docker => Dialect::Docker,
        EngineKind::Podman => Dialect::Podman,
        #[cfg(feature = "apple")]
        EngineKind::Container => {
            let engine = coracle_apple::AppleRuntime::connect(settings)?;
            let program = engine.program().clone();
            return Ok((ObservedRuntime::with_spans(engine), program));
        }
        other => return Err(Error::NotInstalled { program: other.as_str().to_owned() }),
    };
    let engine = CliRuntime::connect(dialect, settings)?;
    let program = engine.program().clone();
    Ok((ObservedRuntime::with_spans(engine), program))
}

/// The engine that was chosen, and those that were passed over.
#[derive(Debug)]
pub struct Detection {
    /// The first that answers, with its information.
    pub chosen: Option<(Arc<dyn ContainerRuntime>, EngineInfo)>,
    /// Installed or not, these were not taken.
    pub skipped: Vec<(EngineKind, Error)>,
}

/// Asks engines in this order and takes the first that is installed and answers.
pub async fn detect(order: &[EngineKind], settings: &EngineSettings) -> Detection {
    let mut skipped = Vec::new();
    for kind in order {
        match answers(*kind, settings).await {
            Ok(chosen) => return Detection { chosen: Some(chosen), skipped },
            Err(err) => skipped.push((*kind, err)),
        }
    }
    Detection { chosen: None, skipped }
}

async fn answers(kind: EngineKind, settings: &EngineSettings) -> Result<(Arc<dyn ContainerRuntime>, EngineInfo)> {
    let (runtime, _) = connect(kind, settings)?;
    let info = runtime.info().await?;
    Ok((runtime, info))
}

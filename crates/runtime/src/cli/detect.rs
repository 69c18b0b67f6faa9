//! Finds the first engine that answers.

use std::sync::Arc;

pub use coracle_host::find_program::{find_program, find_program_in};

use super::{CliRuntime, Dialect, EngineSettings};
use crate::{ContainerRuntime, EngineInfo, EngineKind, Error, Result};

/// The engine that was chosen, and those that were passed over.
#[derive(Debug)]
pub struct Detected {
    /// The first that answers, with what it says of itself.
    pub chosen: Option<(Arc<dyn ContainerRuntime>, EngineInfo)>,
    /// Installed or not, these were not taken.
    pub skipped: Vec<(EngineKind, Error)>,
}

/// Asks engines in this order and takes the first that is installed and answers.
pub async fn detect(order: &[Dialect], settings: &EngineSettings) -> Detected {
    let mut skipped = Vec::new();
    for dialect in order {
        match answers(*dialect, settings).await {
            Ok(chosen) => return Detected { chosen: Some(chosen), skipped },
            Err(err) => skipped.push((dialect.kind(), err)),
        }
    }
    Detected { chosen: None, skipped }
}

async fn answers(dialect: Dialect, settings: &EngineSettings) -> Result<(Arc<dyn ContainerRuntime>, EngineInfo)> {
    let runtime = CliRuntime::connect(dialect, settings)?;
    let info = runtime.info().await?;
    Ok((Arc::new(runtime), info))
}

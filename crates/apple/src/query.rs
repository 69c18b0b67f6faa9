//! Queries of the engine's program, and the lookup of images that several of them need.

use std::time::Duration;

use coracle_engine_program::{EngineArgs, EngineProgram, deadline};
use coracle_host::process::ProgramOutput;
use coracle_runtime::Image;
use coracle_types::{Error, ImageRef, Result};

use crate::{args as words, read as answers};

/// Nothing, if its service runs.
pub(crate) async fn is_up(program: &EngineProgram) -> Result<()> {
    let output = program.run("system status", words::system("status"), deadline::READ).await?;
    if output.ok() && answers::is_up(&output.stdout.bytes()) { Ok(()) } else { Err(program.unavailable(&output)) }
}

/// Runs a query; after a failure, checks whether the service is there at all.
pub(crate) async fn query(
    program: &EngineProgram,
    verb: &'static str,
    it: EngineArgs,
    within: Duration,
) -> Result<ProgramOutput> {
    match program.query(verb, it, within).await {
        Err(failure @ Error::Engine { .. }) => Err(is_up(program).await.err().unwrap_or(failure)),
        other => other,
    }
}

pub(crate) fn host_error(what: &str, source: std::io::Error) -> Error {
    Error::Host { what: what.into(), source }
}

pub(crate) async fn all_images(program: &EngineProgram) -> Result<Vec<Image>> {
    answers::images(&query(program, "image list", words::images(), deadline::READ).await?.stdout.bytes())
}

/// Images of these names, in their order; names of one image are one image.
pub(crate) async fn find_images(program: &EngineProgram, names: &[String]) -> Result<Vec<Image>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let all = all_images(program).await?;
    let named = |text: &String| {
        let name = ImageRef::parse(text).ok()?;
        all.iter().find(|it| it.is_named(&name)).cloned()
    };
    with_configuration(program, names.iter().filter_map(named).collect()).await
}

/// The listing may leave out how an image is configured.
pub(crate) async fn with_configuration(program: &EngineProgram, images: Vec<Image>) -> Result<Vec<Image>> {
    if images.is_empty() {
        return Ok(images);
    }
    let it = words::inspect_images(images.iter().flat_map(|it| it.tags.first()).map(String::as_str))?;
    let output = query(program, "image inspect", it, deadline::READ).await?;
    answers::images(&output.stdout.bytes())
}

//! Removes everything from a data directory: what tests left there, and the images that they shared.

use anyhow::{Context as _, Result};
use coracle_engine::EmbeddedRuntime;
use coracle_runtime::{ContainerRuntime as _, ImageStore as _, LabelFilter, Networks as _, Volumes as _};
use coracle_types::ImageRef;

pub(crate) async fn run(engine: &EmbeddedRuntime) -> Result<()> {
    let all = LabelFilter(Vec::new());
    for it in engine.list(&all).await.context("list containers")? {
        println!("  the embedded engine had `{}` left by tests", it.name);
        engine.remove(&it.id).await.with_context(|| format!("remove {}", it.name))?;
    }
    for it in engine.list_networks(&all).await? {
        engine.remove_network(&it.id).await?;
    }
    for it in engine.list_volumes(&all).await? {
        engine.remove_volume(&it.name).await?;
    }
    for it in engine.list_images(&all).await? {
        // The last name goes with the image; it is not removed while it has others.
        for name in it.tags.iter().skip(1) {
            engine.untag_image(&ImageRef::parse(name)?).await?;
        }
        engine.remove_image(&it.id).await?;
    }
    Ok(())
}

//! `sweep-engine DIRECTORY`: removes everything from a data directory of the embedded engine: what tests left there, and the
//! images that they shared. `cargo xtask test` runs it for each user who had one.
#![expect(clippy::print_stdout, reason = "it tells what was left")]

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use coracle_engine::{EmbeddedRuntime, EngineOptions};
use coracle_runtime::{ContainerRuntime as _, ImageStore as _, LabelFilter, Networks as _, Volumes as _};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [data_dir] = words.as_slice() else { anyhow::bail!("usage: sweep-engine DIRECTORY") };
    ensure!(data_dir.is_dir(), "no directory `{}`", data_dir.display());
    let (home, temp_dir) = (data_dir.clone(), std::env::temp_dir());
    let engine = EmbeddedRuntime::open(EngineOptions { data_dir: data_dir.clone(), guest: None, home, temp_dir, registries: coracle_engine::RegistryOptions::default() })?;
    let all = LabelFilter(Vec::new());
    let containers = engine.list(&all).await.context("list containers")?;
    for it in &containers {
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
        engine.remove_image(&it.id).await?;
    }
    Ok(())
}

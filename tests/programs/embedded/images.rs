//! Verbs on images, networks and volumes.

use std::fs::File;

use anyhow::{Context as _, Result, bail, ensure};
use coracle_engine::EmbeddedRuntime;
use coracle_runtime::{
    ContainerPath, ContainerRuntime as _, Handle, ImageImport, ImageRef, ImageStore as _, LabelFilter, NetworkCreate,
    NetworkName, Networks as _, Volumes as _,
};

use super::{option, plain};

/// Bytes of an archive that is exported.
const MAX_BYTES: u64 = 8 << 30;

pub(crate) async fn run(engine: &EmbeddedRuntime, words: &[&str]) -> Result<()> {
    let names = plain(&words[1..], &["-o"]);
    match (words[0], names.as_slice()) {
        ("network", ["create", name]) => create_network(engine, name, option(words, "label")).await,
        ("network", ["inspect", name]) => {
            let found = engine.find_network(&NetworkName::parse(*name)?).await?;
            ensure!(found.is_some(), "no network `{name}`");
            Ok(())
        }
        ("volume", ["inspect", name]) => {
            let volumes = engine.list_volumes(&LabelFilter(Vec::new())).await?;
            ensure!(volumes.iter().any(|it| it.name == *name), "no volume `{name}`");
            Ok(())
        }
        ("image", ["inspect", name]) => {
            let found = engine.find_images(&[ImageRef::parse(*name)?]).await?;
            ensure!(!found.is_empty(), "no image `{name}`");
            Ok(())
        }
        ("rmi", [names @ ..]) => {
            for name in names {
                engine.untag_image(&ImageRef::parse(*name)?).await?;
            }
            Ok(())
        }
        ("import", [tar, tag]) => {
            let (tar, tag) = (File::open(tar)?, ImageRef::parse(*tag)?);
            engine.import_image(ImageImport { tar, tag, env: vec![], labels: vec![] }).await?;
            Ok(())
        }
        ("export", [name]) => {
            let at = words.iter().position(|it| *it == "-o").and_then(|at| words.get(at + 1)).context("-o FILE")?;
            let found = engine.inspect(&Handle::parse(name)?).await?;
            Ok(engine.download(&found.id, &ContainerPath::root(), File::create(at)?, MAX_BYTES).await?)
        }
        _ => bail!("`{}` is not done on the embedded engine", words.join(" ")),
    }
}

async fn create_network(engine: &EmbeddedRuntime, name: &str, label: Option<&str>) -> Result<()> {
    let labels = label.and_then(|it| it.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let labels = labels.into_iter().collect();
    let request = NetworkCreate { name: NetworkName::parse(name)?, labels, reach: true, internal: false };
    let created = engine.create_network(&request).await?;
    println!("{}", created.id);
    Ok(())
}

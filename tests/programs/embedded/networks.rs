//! Verbs on networks and volumes.

use anyhow::{Result, bail, ensure};
use coracle_engine::EmbeddedRuntime;
use coracle_runtime::{LabelFilter, NetworkCreate, Networks as _, Volumes as _};
use coracle_types::NetworkName;

use super::{option, plain};

pub(crate) async fn run(engine: &EmbeddedRuntime, words: &[&str]) -> Result<()> {
    match (words[0], plain(&words[1..], &["--format"]).as_slice()) {
        ("network", ["create", name]) => create(engine, name, option(words, "label")).await,
        ("network", ["inspect", name]) => {
            let found = engine.find_network(&NetworkName::parse(*name)?).await?;
            ensure!(found.is_some(), "no network `{name}`");
            Ok(())
        }
        ("network", ["ls"]) => {
            let found = engine.list_networks(&LabelFilter(Vec::new())).await?;
            found.iter().for_each(|it| println!("{}", it.name));
            Ok(())
        }
        ("network", ["rm", name]) => Ok(engine.remove_network(name).await?),
        ("volume", ["inspect", name]) => {
            let volumes = engine.list_volumes(&LabelFilter(Vec::new())).await?;
            ensure!(volumes.iter().any(|it| it.name == *name), "no volume `{name}`");
            Ok(())
        }
        ("volume", ["rm", name]) => Ok(engine.remove_volume(name).await?),
        _ => bail!("`{}` is not done on the embedded engine", words.join(" ")),
    }
}

async fn create(engine: &EmbeddedRuntime, name: &str, label: Option<&str>) -> Result<()> {
    let labels = label.and_then(|it| it.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let labels = labels.into_iter().collect();
    let request = NetworkCreate { name: NetworkName::parse(name)?, labels, reach: true, internal: false };
    println!("{}", engine.create_network(&request).await?.id);
    Ok(())
}

//! The API server as a process: writes a kubeconfig and serves until its standard input ends.
#![expect(clippy::print_stdout, reason = "its address is its output")]

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use coracle_engine::{EmbeddedRuntime, EngineOptions, RegistryOptions};
use coracle_kube_api::{Backing, ClusterOptions, KubeApi};
use coracle_runtime::ContainerRuntime;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [data_dir, guest, kubeconfig] = words.as_slice() else {
        bail!("usage: coracle-kube-api DATA-DIR GUEST KUBECONFIG");
    };
    let options = EngineOptions {
        data_dir: PathBuf::from(data_dir),
        guest: Some(PathBuf::from(guest)),
        home: PathBuf::from("/nonexistent"),
        registries: RegistryOptions::default(),
    };
    let open = |options| EmbeddedRuntime::open(options).context("the engine cannot be opened");
    let bare: Arc<dyn ContainerRuntime> = Arc::new(open(EngineOptions { guest: None, ..options.clone() })?);
    let backing = Backing::new(Arc::new(open(options)?), bare);
    let api = KubeApi::start(ClusterOptions::default(), backing)?;
    std::fs::write(kubeconfig, api.kubeconfig("default").to_string()).context("the kubeconfig cannot be written")?;
    println!("{} with the registry {}", api.url(), api.registry());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

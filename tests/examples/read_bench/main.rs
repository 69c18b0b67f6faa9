//! Durations of an engine's reads over its API and by its program, in turns.
//!
//! `read_bench docker|podman [LABEL=VALUE]`: lists the containers of that label, and inspects the first of them.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement prints, or is worth nothing")]
#![expect(clippy::disallowed_methods, reason = "the environment names the engine's socket")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use coracle_docker::{CliRuntime, Dialect};
use coracle_engine_program::{ApiUse, EngineSettings};
use coracle_runtime::{ContainerRuntime, ImageStore as _, LabelFilter, Networks as _};
use coracle_types::{Handle, ImageRef, NetworkName};

const ROUNDS: usize = 41;

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().collect();
    let dialect = if words[1] == "docker" { Dialect::Docker } else { Dialect::Podman };
    let label = words.get(2).and_then(|it| it.split_once('=')).expect("a label");
    let filter = LabelFilter(vec![(label.0.to_owned(), Some(label.1.to_owned()))]);
    let config = tempfile::tempdir().unwrap();
    let connect = |api| {
        let settings = EngineSettings {
            program: None,
            endpoint: None,
            config_dir: config.path().to_owned(),
            home: std::env::var_os("HOME").unwrap_or("/root".into()).into(),
            runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
            temp_dir: std::env::temp_dir(),
            api,
            ssh_config: None,
            ssh_agent: None,
            logins: Default::default(),
        };
        CliRuntime::connect(dialect, &settings).unwrap()
    };
    let ways = [connect(ApiUse::Auto), connect(ApiUse::Never)];
    let first = ways[1].list(&filter).await.unwrap().remove(0);
    let handle = Handle::from(&first.id);
    let missing = Handle::parse("d".repeat(64)).unwrap();
    let image = ImageRef::from(first.image.clone());
    let network = NetworkName::parse("no-such-network").unwrap();

    for read in ["inspect", "inspect of a missing one", "list", "find image", "list images", "find network", "info"] {
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (way, took) in ways.iter().zip(&mut took) {
                let begun = Instant::now();
                match read {
                    "inspect" => drop(way.inspect(&handle).await.unwrap()),
                    "inspect of a missing one" => drop(way.inspect(&missing).await.unwrap_err()),
                    "list" => drop(way.list(&filter).await.unwrap()),
                    "find image" => drop(way.find_images(std::slice::from_ref(&image)).await.unwrap()),
                    "list images" => drop(way.list_images(&LabelFilter::default()).await.unwrap()),
                    "find network" => drop(way.find_network(&network).await.unwrap()),
                    _ => drop(way.info().await.unwrap()),
                }
                took.push(begun.elapsed());
            }
        }
        let [api, program] = took.map(median);
        println!("{} {read}: API {api:.1} ms, program {program:.1} ms", words[1]);
    }
}

fn median(mut all: Vec<Duration>) -> f64 {
    all.sort();
    all[all.len() / 2].as_secs_f64() * 1000.0
}

//! `cargo xtask bench clients [CONTAINERS]`: what a program of the Python client sees: many containers at once, and commands over its open
//! connection beside the engine's own program.

use std::{env, fs};

use anyhow::Result;

use crate::engines::kubernetes::{self, RunningCluster};
use crate::sh::{root, sh, target, var};
use crate::{clients, engines, guest};

/// Containers at once where none are named.
pub(super) const CONTAINERS: u32 = 1000;

const CALLS: u32 = 1000;

const KUBERNETES: &str = "kubernetes";

/// Libraries that programs create containers with, and what SWE-ReX imports and does not require.
const PEERS: &[&str] =
    &["docker==7.2.0", "testcontainers==4.15.0", "llm-sandbox==0.3.46", "swe-rex==1.4.0", "aiohttp==3.14.5"];

/// Rounds of one container of each library, and the size of the file that is written and read.
const PEER_ROUNDS: u32 = 9;
const MEGABYTES: u32 = 100;

/// What the last run with Docker measured of them.
const PEERS_MEASURED: &str = "bench/peers.json";

pub(super) const PAGE: &str = include_str!("pages/clients.jinja");

pub(super) fn run(containers: u32) -> Result<()> {
    let engines = var("CORACLE_ENGINES").unwrap_or("docker,podman".to_owned());
    let engines: Vec<&str> = engines.split(',').filter(|it| !it.is_empty()).collect();
    let mut cluster = None;
    for engine in &engines {
        match *engine {
            KUBERNETES => cluster = Some(kubernetes::running()?),
            engine => engines::up(Some(engine))?,
        }
    }
    clients::generate_python()?;
    let features: &[&str] = if cluster.is_some() { &["--features", KUBERNETES] } else { &[] };
    guest::build_release(features)?;
    sh("cargo", ["build", "--release", "--package", "coracle-cli", "--bin", "coracle"].iter().chain(features)).run()?;
    let home = target().join("bench/clients");
    let config = home.join(".config/coracle");
    fs::create_dir_all(&config)?;
    let allowed = containers + 10;
    let limits = format!("max_containers = {allowed}\nmax_containers_total = {allowed}\n");
    fs::write(config.join("config.toml"), limits + &cluster.as_ref().map(table).unwrap_or_default())?;
    let measured = target().join("bench/clients.json");
    let (script, out) = (root().join("tests/clients/clients_bench.py"), measured.display().to_string());
    let words = [script.display().to_string(), out, home.display().to_string(), containers.to_string()];
    let words = words.into_iter().chain([CALLS.to_string(), "embedded".to_owned()]);
    let mut python = sh("python3", words.chain(engines.iter().map(|it| with_image(it, cluster.as_ref()))))
        .env("PYTHONPATH", root().join("clients/python"))
        .env("CORACLE_BIN", target().join("release/coracle"));
    if let Some(RunningCluster { kubeconfig, programs, .. }) = &cluster {
        let path = var("PATH").unwrap_or_default();
        let path = env::join_paths([programs.clone()].into_iter().chain(env::split_paths(&path)))?;
        python = python.env("KUBECONFIG", kubeconfig).env("PATH", path);
    }
    python.run()?;
    if engines.contains(&"docker") {
        let python = clients::python_with(&target().join("bench/peers"), PEERS)?;
        let words = [
            root().join("tests/clients/peers_bench.py").display().to_string(),
            target().join(PEERS_MEASURED).display().to_string(),
            PEER_ROUNDS.to_string(),
            MEGABYTES.to_string(),
        ];
        let peers = sh(python, words).env("PYTHONPATH", root().join("clients/python")).env("HOME", &home);
        peers.env("CORACLE_BIN", target().join("release/coracle")).run()?;
    }
    write()
}

/// The cluster's table of the configuration.
fn table(cluster: &RunningCluster) -> String {
    let registry = cluster.image.split('/').next().unwrap_or_default();
    format!("[kubernetes]\nkubeconfig = \"{}\"\ninsecure_registries = [\"{registry}\"]\n", cluster.kubeconfig.display())
}

/// An engine, with an image that the cluster's nodes can fetch.
fn with_image(engine: &str, cluster: Option<&RunningCluster>) -> String {
    match cluster.filter(|_| engine == KUBERNETES) {
        Some(cluster) => format!("{engine}={}", cluster.image),
        None => engine.to_owned(),
    }
}

/// Writes the page of what was measured last.
pub(super) fn write() -> Result<()> {
    let mut measured = super::read(&target().join("bench/clients.json"))?;
    if let Ok(peers) = super::read(&target().join(PEERS_MEASURED)) {
        measured["peers"] = peers;
    }
    super::write("clients", PAGE, &measured)
}

//! `cargo xtask bench clients [CONTAINERS]`: what a program of the Python client sees: many containers at once, and commands over its open
//! connection beside the engine's own program.

use std::env;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::report::number;
use super::{cell, machine, quantile};
use crate::clients;
use crate::engines;
use crate::engines::kubernetes::{self, RunningCluster};
use crate::guest;
use crate::sh::{root, sh, target, var};

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

/// The steps of a round.
const STEPS: [&str; 5] = ["create", "exec", "write", "read", "destroy"];

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
    guest::build_small(&guest::PROGRAMS)?;
    let features = cluster.iter().flat_map(|_| ["--features", KUBERNETES]);
    sh("cargo", ["build", "--release", "--package", "coracle-cli", "--bin", "coracle"].into_iter().chain(features))
        .run()?;
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
    let measured = target().join("bench/clients.json");
    let text = fs::read_to_string(&measured).with_context(|| format!("read {}", measured.display()))?;
    let mut page = page(&serde_json::from_str(&text)?, &machine()?)?;
    if let Ok(text) = fs::read_to_string(target().join(PEERS_MEASURED)) {
        page.push_str(&peers(&serde_json::from_str(&text)?)?);
    }
    fs::write(root().join("docs/bench/clients.md"), &page)?;
    println!("\n{page}");
    Ok(())
}

fn page(measured: &Value, machine: &str) -> Result<String> {
    let list = |name: &str| measured.pointer(name).and_then(Value::as_array).with_context(|| format!("no `{name}`"));
    let (engine, count) = (&measured["many"]["engine"], &measured["many"]["count"]);
    let mut page = format!(
        "# A client and many containers: times and memory\n\n\
         Written by `cargo xtask bench clients`, which runs the Python client. {machine}. Memory and processor time are those of \
         the processes in `/proc`.\n\n\
         ## {count} containers of one client process\n\n\
         All are there at once, on the {} engine. They have no network and no mounted directory; four are created at a time, \
         and the other calls are made all at once.\n\n| step | seconds | failures |\n|---|--:|--:|\n",
        engine.as_str().unwrap_or_default()
    );
    for step in list("/many/steps")? {
        let (name, failures) = (step["name"].as_str().unwrap_or_default(), &step["failures"]);
        let _ = writeln!(page, "| {} | {} | {failures} |", label(name), number(float(step, "seconds")?));
    }
    server(&mut page, &measured["many"])?;
    page.push_str(
        "\n## A command over the open connection\n\n`true` in one container, one after another: milliseconds, median and 99th \
         percentile. \"×\": how many times faster than the engine's own `exec` in the same run. The last column is what `coracle \
         serve` takes of a processor.\n\n| engine | client | own program | × | processor |\n|---|--:|--:|--:|--:|\n",
    );
    for it in list("/calls")? {
        let (ours, own) = (floats(it, "ms")?, floats(it, "own_ms")?);
        let times =
            quantile(&own, 0.5).zip(quantile(&ours, 0.5)).map_or("–".to_owned(), |(own, ours)| number(own / ours));
        let processor = number(floats(it, "processor_ms")?.iter().sum());
        let engine = it["engine"].as_str().unwrap_or_default();
        let _ = writeln!(page, "| {engine} | {} | {} | {times} | {processor} |", cell(&ours), cell(&own));
    }
    let median = |engine| -> Result<Option<f64>> {
        let found = list("/calls")?.iter().find(|it| it["engine"] == engine);
        Ok(found.map(|it| floats(it, "ms")).transpose()?.and_then(|it| quantile(&it, 0.5)))
    };
    if let Some((pod, container)) = median(KUBERNETES)?.zip(median("docker")?) {
        let _ =
            writeln!(page, "\nA command in a Pod takes {} times as long as one on Docker.", number(pod / container));
    }
    Ok(page)
}

/// The section about other libraries.
fn peers(measured: &Value) -> Result<String> {
    let seconds = measured["seconds"].as_object().context("no `seconds`")?;
    let versions = measured["versions"].as_object().context("no `versions`")?;
    let versions: Vec<_> =
        versions.iter().map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or_default())).collect();
    let (ours, others): (Vec<_>, Vec<_>) = seconds.iter().partition(|(name, _)| *name == "coracle");
    let ours = ours.first().context("no `coracle`")?.1;
    let mut page = format!(
        "\n## Beside other libraries\n\nOne container of each library in turn, on Docker and of one image, by \
         `tests/clients/peers_bench.py`: {}. `exec` is `true`; the file has {} MB. Milliseconds, median and 99th percentile. \
         \"×\": how many times faster than the fastest of the others.\n\n| step | Coracle | {} | × |\n|---|{}--:|\n",
        versions.join(", "),
        measured["megabytes"],
        others.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" | "),
        "--:|".repeat(others.len() + 1)
    );
    for step in STEPS {
        let times = |library: &Value| -> Result<Vec<f64>> {
            if library.get(step).is_none() {
                return Ok(Vec::new());
            }
            let mut times: Vec<_> = floats(library, step)?.into_iter().map(|seconds| seconds * 1000.0).collect();
            times.sort_by(f64::total_cmp);
            Ok(times)
        };
        let own = times(ours)?;
        let theirs = others.iter().map(|(_, library)| times(library)).collect::<Result<Vec<_>>>()?;
        let fastest = theirs.iter().filter_map(|all| quantile(all, 0.5)).reduce(f64::min);
        let ratio = fastest.zip(quantile(&own, 0.5)).map_or("–".to_owned(), |(other, own)| number(other / own));
        let theirs: Vec<_> = theirs.iter().map(|all| cell(all)).collect();
        let _ = writeln!(page, "| {step} | {} | {} | {ratio} |", cell(&own), theirs.join(" | "));
    }
    page.push_str(
        "\nA container of Coracle is on a network on which it reaches no other container; those of the other libraries share \
         Docker's default bridge, on which Docker starts a container faster. `create` also sets up the user, git, certificates \
         and the guest inside.\n",
    );
    Ok(page)
}

fn server(page: &mut String, many: &Value) -> Result<()> {
    let of = &many["server"];
    let mib = |it: &Value, name: &str| Ok::<_, anyhow::Error>(number(float(it, name)? / 1024.0));
    let seconds: Vec<_> = floats(of, "processor")?.into_iter().map(number).collect();
    let _ = write!(
        page,
        "\n| `coracle serve` | |\n|---|--:|\n\
         | memory at rest, MiB | {} |\n| memory with all containers, MiB | {} |\n| peak of memory, MiB | {} |\n\
         | open files with all containers | {} |\n| threads | {} |\n\
         | processor time in all, seconds (user + system) | {} |\n\n\
         The client, a Python process, had {} MiB at most.\n",
        mib(of, "rest_kib")?,
        mib(of, "full_kib")?,
        mib(of, "peak_kib")?,
        of["open_files"],
        of["threads"],
        seconds.join(" + "),
        mib(many, "client_kib")?,
    );
    Ok(())
}

fn float(it: &Value, name: &str) -> Result<f64> {
    it[name].as_f64().with_context(|| format!("no `{name}`"))
}

fn floats(it: &Value, name: &str) -> Result<Vec<f64>> {
    let all = it[name].as_array().with_context(|| format!("no `{name}`"))?;
    all.iter().map(|it| it.as_f64().with_context(|| format!("`{name}` has no numbers"))).collect()
}

fn label(step: &str) -> &str {
    match step {
        "create" => "create all",
        "write" => "write a file in each",
        "read" => "read it by a command in each",
        "again" => "another command in each",
        "destroy" => "destroy all, with the written files saved",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_libraries_are_compared_by_the_fastest() {
        let measured = json!({
            "megabytes": 10,
            "versions": { "docker-py": "7.2.0", "SWE-ReX": "1.4.0" },
            "seconds": {
                "coracle": { "create": [0.25], "exec": [0.002], "write": [0.01], "read": [0.01], "destroy": [0.1] },
                "docker-py": { "create": [0.5], "exec": [0.05], "write": [0.09], "read": [0.09], "destroy": [0.2] },
                "SWE-ReX": { "create": [1.5], "exec": [0.004], "write": [0.02], "destroy": [0.3] },
            },
        });
        let page = peers(&measured).expect("all is there");
        for line in [
            "SWE-ReX 1.4.0",
            "| step | Coracle | SWE-ReX | docker-py | × |",
            "| create | 250 (250) | 1500 (1500) | 500 (500) | 2.00 |",
            "| exec | 2.00 (2.00) | 4.00 (4.00) | 50.0 (50.0) | 2.00 |",
            "| read | 10.0 (10.0) | – | 90.0 (90.0) | 9.00 |",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }

    #[test]
    fn the_page_has_steps_memory_and_ratios() {
        let measured = json!({
            "many": {
                "engine": "embedded", "count": 7, "client_kib": 2048,
                "steps": [{ "name": "create", "seconds": 3.5, "failures": 1 }],
                "server": {
                    "rest_kib": 1024, "full_kib": 4096, "peak_kib": 5120, "open_files": 9, "threads": 3,
                    "processor": [1.5, 2.5],
                },
            },
            "calls": [
                { "engine": "embedded", "ms": [1.0, 2.0, 3.0], "own_ms": [], "processor_ms": [0.25, 0.25] },
                { "engine": "docker", "ms": [2.0], "own_ms": [50.0], "processor_ms": [0.5, 0.5] },
            ],
        });
        let page = page(&measured, "a machine").expect("all is there");
        for line in [
            "## 7 containers of one client process",
            "| create all | 3.50 | 1 |",
            "| memory with all containers, MiB | 4.00 |",
            "| embedded | 2.00 (3.00) | – | – | 0.500 |",
            "| docker | 2.00 (2.00) | 50.0 (50.0) | 25.0 | 1.00 |",
            "(user + system) | 1.50 + 2.50 |",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }
}

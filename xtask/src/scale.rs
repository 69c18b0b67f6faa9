//! `cargo xtask scale [NODES [PODS]]`: the Kubernetes engine against a real API server with nodes that only say they are there: no container
//! starts, so one machine shows what thousands cost. What was measured and a large cluster on paper go into `docs/scale.md`.

mod model;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use self::model::{ClusterSpeed, Demand, assumptions, table};
use crate::bench;
use crate::engines::kubernetes;
use crate::sh::{root, sh, target};

const NODES: &str = "1000";
const PODS: &str = "2000";

/// Seconds until a Pod on a node with room answers: measured on the two real nodes, whose kubelets look once a second.
const COLD_START: f64 = 1.2;

pub(crate) fn run(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [nodes, pods] = match words[..] {
        [] => [NODES, PODS],
        [nodes] => [nodes, PODS],
        ["page", measured] => return write(Path::new(measured)),
        [nodes, pods] => [nodes, pods],
        _ => bail!("usage: cargo xtask scale [NODES [PODS]], or scale page MEASURED"),
    };
    let cluster = kubernetes::running()?;
    let packages = ["--package", "coracle-tests", "--example", "kube_scale"];
    // Unoptimised it would be a part of what it measures.
    sh("cargo", ["build", "--release"].into_iter().chain(packages)).run()?;
    let measured = target().join("bench/scale.json");
    fs::create_dir_all(target().join("bench"))?;
    let words = [measured.clone(), cluster.kubeconfig, cluster.image.into(), nodes.into(), pods.into()];
    sh(target().join("release/examples/kube_scale"), words).run()?;
    write(&measured)
}

fn write(measured: &Path) -> Result<()> {
    let page = page(&bench::read(measured)?, &bench::machine()?)?;
    fs::write(root().join("docs/scale.md"), &page)?;
    println!("\n{page}");
    Ok(())
}

fn page(measured: &Value, machine: &str) -> Result<String> {
    let figure = |it: &Value, name: &str| it[name].as_f64().with_context(|| format!("no `{name}`"));
    let mut scheduler: f64 = 0.0;
    for load in measured["loads"].as_array().context("no `loads`")? {
        scheduler = scheduler.max(figure(load, "pods")? / figure(load, "seconds")?);
    }
    let speed = ClusterSpeed { scheduler, cold_start: COLD_START };
    let demands = [(10_000.0, 600.0), (10_000.0, 60.0), (100_000.0, 3600.0), (100_000.0, 600.0)];
    let demands = demands.map(|(sandboxes, life_seconds)| Demand { sandboxes, life_seconds });
    let mut model = String::new();
    table(&mut model, &demands, &speed);
    model.push_str("\nWhat it rests on:\n\n");
    assumptions(&mut model, &speed);
    let mut measured = measured.clone();
    measured["model"] = model.into();
    bench::render(include_str!("bench/pages/scale.jinja"), &measured, machine)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_has_loads_lists_and_the_model_of_what_was_measured() {
        let measured = json!({
            "server": "v1", "nodes": 1000, "events_per_pod": 3.0, "removal_seconds": 5.5, "memory_kib": { "etcd": 2048 },
            "loads": [{
                "label": "at once", "pods": 2000, "seconds": 20.0, "create_ms": [3.0, 1.0, 2.0], "scheduled_ms": [7.0],
                "refused": 0,
            }],
            "lists": [{ "found": 40, "pods": 2000, "ms": [66.0] }],
        });
        let page = page(&measured, "a machine").expect("all is there");
        for row in [
            "| at once | 2,000 | 20.0 | 100 | 2.00 (3.00) | 7.00 (7.00) | 0 |",
            "| list 40 of 2,000 containers, ms | 66.0 (66.0) |",
            "| memory of etcd, MiB | 2.00 |",
            "The scheduler binds 100 Pods a second",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
    }
}

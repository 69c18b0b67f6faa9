//! `cargo xtask scale [NODES [PODS]]`: the Kubernetes engine against a real API server with nodes that only say they are there: no container
//! starts, so one machine shows what thousands cost. What was measured and a large cluster on paper go into `docs/scale.md`.

mod model;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use self::model::{ClusterSpeed, Demand, assumptions, table, whole};
use crate::bench::{cell, machine, number};
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
        ["page", measured] => return write(&PathBuf::from(measured)),
        [nodes, pods] => [nodes, pods],
        _ => bail!("usage: cargo xtask scale [NODES [PODS]], or scale page MEASURED"),
    };
    let cluster = kubernetes::running()?;
    let packages = ["--package", "coracle-tests", "--example", "kube_scale"];
    // Unoptimised it would be a part of what it measures; what matters more is that it is soon built.
    sh("cargo", ["build", "--profile", "fast"].into_iter().chain(packages)).run()?;
    let measured = target().join("bench/scale.json");
    fs::create_dir_all(target().join("bench"))?;
    let words = [measured.clone(), cluster.kubeconfig, cluster.image.into(), nodes.into(), pods.into()];
    sh(target().join("fast/examples/kube_scale"), words).run()?;
    write(&measured)
}

fn write(measured: &PathBuf) -> Result<()> {
    let text = fs::read_to_string(measured).with_context(|| format!("read {}", measured.display()))?;
    let page = page(&serde_json::from_str(&text)?, &machine()?)?;
    fs::write(root().join("docs/scale.md"), &page)?;
    println!("\n{page}");
    Ok(())
}

fn page(measured: &Value, machine: &str) -> Result<String> {
    let loads = measured["loads"].as_array().context("no `loads`")?;
    let mut page = format!(
        "# Many sandboxes on Kubernetes\n\n\
         Written by `cargo xtask scale`. {machine}; Kubernetes {}, its API server, etcd and scheduler on the same machine.\n\n\
         {} nodes only say that they are there: they answer for their Pods and start nothing. What is measured is the way of a \
         container through Coracle, the API server, etcd and the scheduler.\n\n\
         ## Pods made by the engine\n\nMilliseconds: median and 99th percentile. \"Scheduled\": from the request until a watch tells \
         that a node has it.\n\n\
         | load | Pods | seconds | Pods a second | create | scheduled | refused |\n|---|--:|--:|--:|--:|--:|--:|\n",
        measured["server"].as_str().unwrap_or_default(),
        whole(float(measured, "/nodes")?),
    );
    let mut scheduler: f64 = 0.0;
    for load in loads {
        let (pods, seconds) = (float(load, "/pods")?, float(load, "/seconds")?);
        scheduler = scheduler.max(pods / seconds);
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} |",
            load["label"].as_str().unwrap_or_default(),
            whole(pods),
            number(seconds),
            number(pods / seconds),
            cell(&floats(load, "create_ms")?),
            cell(&floats(load, "scheduled_ms")?),
            load["refused"],
        );
    }
    looks(&mut page, measured)?;
    let speed = ClusterSpeed { scheduler, cold_start: COLD_START };
    page.push_str("\n## A large cluster on paper\n\n");
    let demands = [(10_000.0, 600.0), (10_000.0, 60.0), (100_000.0, 3600.0), (100_000.0, 600.0)];
    let demands = demands.map(|(sandboxes, life_seconds)| Demand { sandboxes, life_seconds });
    table(&mut page, &demands, &speed);
    page.push_str("\nWhat it rests on:\n\n");
    assumptions(&mut page, &speed);
    Ok(page)
}

/// Lists, the watch, memory and the removal.
fn looks(page: &mut String, measured: &Value) -> Result<()> {
    page.push_str("\n## Lists, and what all of it takes\n\n| | |\n|---|--:|\n");
    for list in measured["lists"].as_array().context("no `lists`")? {
        let (found, pods) = (float(list, "/found")?, float(list, "/pods")?);
        let _ = writeln!(
            page,
            "| list {} of {} containers, ms | {} |",
            whole(found),
            whole(pods),
            cell(&floats(list, "ms")?)
        );
    }
    let _ = writeln!(page, "| events of the watch for a Pod | {} |", number(float(measured, "/events_per_pod")?));
    let _ = writeln!(page, "| remove all, seconds | {} |", number(float(measured, "/removal_seconds")?));
    for (process, kib) in measured["memory_kib"].as_object().context("no `memory_kib`")? {
        let mib = kib.as_f64().context("a size")? / 1024.0;
        let _ = writeln!(page, "| memory of {process}, MiB | {} |", number(mib));
    }
    Ok(())
}

fn float(it: &Value, pointer: &str) -> Result<f64> {
    it.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no `{pointer}`"))
}

/// In ascending order.
fn floats(it: &Value, name: &str) -> Result<Vec<f64>> {
    let all = it[name].as_array().with_context(|| format!("no `{name}`"))?;
    let mut all = all.iter().map(|it| it.as_f64().context("a number")).collect::<Result<Vec<_>>>()?;
    all.sort_by(f64::total_cmp);
    Ok(all)
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

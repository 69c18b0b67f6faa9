//! Measures the Kubernetes engine against a real API server whose nodes only say that they are there, for `cargo xtask scale`.
//!
//! `kube_scale OUT KUBECONFIG IMAGE NODES PODS` writes JSON to the file `OUT`. The cluster is to be one for tests: nodes are added to it and
//! removed again, and its namespace `coracle-scale` is emptied.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is worth nothing")]
#![expect(clippy::print_stderr, reason = "progress for the user who waits")]

mod load;
mod memory;
mod nodes;
mod schedule;

use std::path::Path;
use std::time::Instant;

use coracle_kube::{KubeRuntime, KubeSettings, KubeToleration};
use coracle_runtime::{ContainerRuntime as _, ImageStore as _, LabelFilter};
use coracle_types::ImageRef;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::load::{Load, SESSIONS};
use crate::nodes::FakeNodes;
use crate::schedule::Schedule;

const NAMESPACE: &str = "coracle-scale";

/// Requests at once where they come as fast as they can.
const AT_ONCE: usize = 32;

/// Looks at each list.
const LOOKS: usize = 10;

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, kubeconfig, image, nodes, pods] = &words[..] else {
        panic!("usage: kube_scale OUT KUBECONFIG IMAGE NODES PODS")
    };
    let kubeconfig = Path::new(kubeconfig);
    let (nodes, pods) = (nodes.parse::<usize>().unwrap(), pods.parse::<usize>().unwrap());
    let runtime = KubeRuntime::open(settings(kubeconfig, image)).unwrap();
    let image = runtime.pull_image(&ImageRef::parse(image).unwrap(), load::PATIENCE).await.unwrap();
    let client = nodes::client(kubeconfig).await;
    let fakes = FakeNodes::add(&client, nodes).await;
    eprintln!("{nodes} nodes");
    let schedule = Schedule::watch(&client).await;
    let mut loads = Vec::new();
    for load in [
        Load { label: "20 a second", pods: 300, at_once: AT_ONCE, per_second: Some(20.0) },
        Load { label: "45 a second", pods: 450, at_once: AT_ONCE, per_second: Some(45.0) },
        Load { label: "32 at once", pods, at_once: AT_ONCE, per_second: None },
    ] {
        eprintln!("{}: {} Pods", load.label, load.pods);
        loads.push(load.run(&runtime, &schedule, &image).await);
    }
    let (lists, memory) = (lists(&runtime).await, memory::of_cluster());
    let removal_seconds = remove_all(&runtime).await;
    let info = runtime.info().await.unwrap();
    fakes.remove(&client).await;
    let measured = json!({
        "server": info.version,
        "nodes": nodes,
        "loads": loads,
        "lists": lists,
        "events_per_pod": schedule.events_per_pod(),
        "removal_seconds": removal_seconds,
        "memory_kib": memory,
    });
    std::fs::write(out, format!("{measured:#}\n")).unwrap();
}

fn settings(kubeconfig: &Path, image: &str) -> KubeSettings {
    let registry = image.split('/').next().unwrap_or_default().to_owned();
    KubeSettings {
        kubeconfig: Some(kubeconfig.to_owned()),
        namespace: Some(NAMESPACE.into()),
        insecure_registries: vec![registry],
        node_selector: [(nodes::LABEL.to_owned(), "true".to_owned())].into(),
        tolerations: vec![KubeToleration { key: nodes::LABEL.into(), value: None, effect: None }],
        ..KubeSettings::default()
    }
}

/// All containers, and those of one session.
async fn lists(runtime: &KubeRuntime) -> Vec<Value> {
    let whole = LabelFilter(vec![("coracle.managed".into(), Some("true".into()))]);
    let of_one = LabelFilter(vec![(load::SESSION.into(), Some("s1".into()))]);
    let count = runtime.list(&whole).await.unwrap().len();
    let mut lists = Vec::new();
    for filter in [whole, of_one] {
        let (mut ms, mut found) = (Vec::new(), 0);
        for _ in 0..LOOKS {
            let begun = Instant::now();
            found = runtime.list(&filter).await.unwrap().len();
            ms.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
        lists.push(json!({ "found": found, "pods": count, "ms": ms }));
    }
    assert!(count / SESSIONS > 0, "there are {count} containers");
    lists
}

/// Seconds until a list is empty.
async fn remove_all(runtime: &KubeRuntime) -> f64 {
    let whole = LabelFilter(vec![("coracle.managed".into(), Some("true".into()))]);
    let begun = Instant::now();
    let all = runtime.list(&whole).await.unwrap();
    let removed = stream::iter(all).map(|it| async move { runtime.remove(&it.id).await.unwrap() });
    removed.buffer_unordered(AT_ONCE).for_each(|_| std::future::ready(())).await;
    assert!(runtime.list(&whole).await.unwrap().is_empty(), "some are left");
    begun.elapsed().as_secs_f64()
}

//! Assigns Pods to nodes, and fails nodes.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::conditions::set_condition;
use crate::quantity::quantity;
use crate::store::Key;

/// Waits until a Pod has a node.
pub(crate) async fn assign(cluster: &Arc<Cluster>, key: &Key, uid: &str) {
    let mut changed = cluster.store.subscribe();
    loop {
        let Some(pod) = cluster.store.get(key).filter(|it| it["metadata"]["uid"] == uid) else { return };
        if pod["spec"]["nodeName"].is_string() {
            return;
        }
        let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|it| !it.is_empty());
        match (gated, choose(cluster, &pod)) {
            (true, _) => not_scheduled(
                cluster,
                key,
                uid,
                &pod,
                "SchedulingGated",
                "Scheduling is blocked due to non-empty scheduling gates",
            ),
            (false, Err(why)) => not_scheduled(cluster, key, uid, &pod, "Unschedulable", &why),
            (false, Ok(node)) => {
                sleep(cluster.options.schedule).await;
                cluster.set_status(key, uid, |pod| {
                    pod["spec"]["nodeName"] = json!(node);
                    set_condition(pod, "PodScheduled", "True", "", "");
                });
                cluster.event(&pod, "Scheduled", &format!("Successfully assigned {} to {node}", key.name));
                return;
            }
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

fn not_scheduled(cluster: &Cluster, key: &Key, uid: &str, pod: &Value, reason: &str, why: &str) {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    if conditions.into_iter().any(|it| it["type"] == "PodScheduled" && it["reason"] == reason && it["message"] == why) {
        return;
    }
    cluster.set_status(key, uid, |pod| set_condition(pod, "PodScheduled", "False", reason, why));
    if reason == "Unschedulable" {
        cluster.event(pod, "FailedScheduling", why);
    }
}

/// The node with the fewest Pods that has room for another, or why there is none.
fn choose(cluster: &Cluster, pod: &Value) -> Result<String, String> {
    let nodes = cluster.store.list("nodes", None).objects;
    let pods = cluster.store.list("pods", None).objects;
    let mut reasons: Vec<String> = Vec::new();
    let mut free: Vec<(usize, String)> = Vec::new();
    for (key, node) in &nodes {
        let here = pods.iter().filter(|(_, it)| it["spec"]["nodeName"] == key.name.as_str()).count();
        match refusal(pod, node) {
            Some(why) => reasons.push(why),
            None if node["status"]["allocatable"]["pods"]
                .as_str()
                .and_then(|it| it.parse().ok())
                .is_some_and(|it: usize| here >= it) =>
            {
                reasons.push("Too many pods".into());
            }
            None => free.push((here, key.name.clone())),
        }
    }
    match free.into_iter().min() {
        Some((_, node)) => Ok(node),
        None => {
            reasons.sort();
            let mut counted: Vec<String> = Vec::new();
            for reason in &reasons {
                let text = format!("{} {reason}", reasons.iter().filter(|it| *it == reason).count());
                if !counted.contains(&text) {
                    counted.push(text);
                }
            }
            Err(format!("0/{} nodes are available: {}.", nodes.len(), counted.join(", ")))
        }
    }
}

/// Why a node does not take a Pod.
fn refusal(pod: &Value, node: &Value) -> Option<String> {
    if !has_ready(node) {
        return Some("node(s) had untolerated taint {node.kubernetes.io/unreachable: }".into());
    }
    for (name, value) in pod["spec"]["nodeSelector"].as_object().into_iter().flatten() {
        if node["metadata"]["labels"][name] != *value {
            return Some("node(s) didn't match Pod's node affinity/selector".into());
        }
    }
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        for (resource, amount) in container["resources"]["requests"].as_object().into_iter().flatten() {
            let there = quantity(&node["status"]["allocatable"][resource]);
            let there = if resource == "ephemeral-storage" { Some(f64::MAX) } else { there };
            if quantity(amount).unwrap_or(0.0) > there.unwrap_or(0.0) {
                return Some(format!("Insufficient {resource}"));
            }
        }
    }
    None
}

fn has_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Whether a node answers.
pub(crate) fn is_ready(cluster: &Cluster, name: &str) -> bool {
    cluster.store.get(&Key::node(name)).is_some_and(|it| has_ready(&it))
}

/// Marks the Pods of an unreachable node as not ready. They are still reported as running.
pub(crate) fn lose(cluster: &Cluster, name: &str) {
    let lost = cluster.store.update(&Key::node(name), |node| {
        set_condition(node, "Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.");
        node["spec"]["taints"] = json!([
            { "key": "node.kubernetes.io/unreachable", "effect": "NoSchedule" },
            { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" },
        ]);
        Ok(())
    });
    if lost.is_err() {
        return;
    }
    for (key, pod) in cluster.store.list("pods", None).objects {
        if pod["spec"]["nodeName"] == name {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            cluster.set_status(&key, uid, |pod| set_condition(pod, "Ready", "False", "NodeNotReady", ""));
            cluster.event(&pod, "NodeNotReady", "Node is not ready");
        }
    }
}

/// A node that was lost is back.
pub(crate) fn bring_back(cluster: &Cluster, name: &str) {
    let back = cluster.store.update(&Key::node(name), |node| {
        set_condition(node, "Ready", "True", "KubeletReady", "");
        node["spec"]["taints"] = json!([]);
        Ok(())
    });
    if back.is_err() {
        return;
    }
    for (key, pod) in cluster.store.list("pods", None).objects {
        if pod["spec"]["nodeName"] == name && pod["status"]["phase"] == "Running" {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            cluster.set_status(&key, uid, |pod| set_condition(pod, "Ready", "True", "", ""));
        }
    }
}

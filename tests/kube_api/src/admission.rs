//! Admission: completes new Pods, or refuses them.

use coracle_types::random_hex;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::quantity::quantity;
use crate::status::Refusal;
use crate::store::Key;

/// Fills in defaults of a Pod.
pub(crate) fn default_pod(pod: &mut Value) {
    let spec = &mut pod["spec"];
    let defaults = [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("serviceAccountName", json!("default")),
        ("enableServiceLinks", json!(true)),
    ];
    for (field, value) in defaults {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            container["terminationMessagePath"] = json!("/dev/termination-log");
            container["terminationMessagePolicy"] = json!("File");
            if container["resources"].is_null() {
                container["resources"] = json!({});
            }
            // A limit without a request is one.
            let limits = container["resources"]["limits"].clone();
            for (name, limit) in limits.as_object().into_iter().flatten() {
                if container["resources"]["requests"][name].is_null() {
                    container["resources"]["requests"][name] = limit.clone();
                }
            }
        }
    }
    if spec["automountServiceAccountToken"] != false {
        mount_token(spec);
    }
    pod["status"] = json!({ "phase": "Pending", "qosClass": "Burstable" });
}

fn mount_token(spec: &mut Value) {
    let name = format!("kube-api-access-{}", random_hex::<3>());
    let mount = json!({ "name": name, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true });
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            push(&mut container["volumeMounts"], mount.clone());
        }
    }
    push(&mut spec["volumes"], json!({ "name": name, "projected": { "sources": [{ "serviceAccountToken": {} }] } }));
}

fn push(list: &mut Value, item: Value) {
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}

/// Whether a Pod is admitted to its namespace.
pub(crate) fn admit_pod(cluster: &Cluster, namespace: &str, pod: &Value) -> Result<(), Refusal> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or_default();
    let key = Key { plural: "serviceaccounts", namespace: namespace.to_owned(), name: account.to_owned() };
    if cluster.store.get(&key).is_none() {
        let why =
            format!("error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found");
        return Err(Refusal::forbidden("pods", name, &why));
    }
    if let Some(class) = pod["spec"]["runtimeClassName"].as_str() {
        let key = Key { plural: "runtimeclasses", namespace: String::new(), name: class.to_owned() };
        if cluster.store.get(&key).is_none() {
            let why = format!("pod rejected: RuntimeClass \"{class}\" not found");
            return Err(Refusal::forbidden("pods", name, &why));
        }
    }
    for (_, quota) in cluster.store.list("resourcequotas", Some(namespace)).objects {
        within(cluster, namespace, pod, &quota)?;
    }
    Ok(())
}

fn within(cluster: &Cluster, namespace: &str, pod: &Value, quota: &Value) -> Result<(), Refusal> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let quota_name = quota["metadata"]["name"].as_str().unwrap_or_default();
    let used = used(cluster, namespace, quota);
    for (resource, hard) in quota["spec"]["hard"].as_object().into_iter().flatten() {
        let Some(wanted) = usage_of(pod, resource) else {
            let why = format!("failed quota: {quota_name}: must specify {resource} for: main");
            return Err(Refusal::forbidden("pods", name, &why));
        };
        let taken = quantity(&used[resource]).unwrap_or(0.0);
        if taken + wanted > quantity(hard).unwrap_or(f64::MAX) {
            let limited = hard.as_str().map_or_else(|| hard.to_string(), str::to_owned);
            let why = format!(
                "exceeded quota: {quota_name}, requested: {resource}={wanted}, used: {resource}={taken}, limited: {resource}={limited}"
            );
            return Err(Refusal::forbidden("pods", name, &why));
        }
    }
    Ok(())
}

/// How much of a quota's resources the Pods of a namespace use.
pub(crate) fn used(cluster: &Cluster, namespace: &str, quota: &Value) -> Value {
    let pods = cluster.store.list("pods", Some(namespace)).objects;
    let live: Vec<&Value> = pods
        .iter()
        .map(|(_, it)| it)
        .filter(|it| !["Succeeded", "Failed"].contains(&it["status"]["phase"].as_str().unwrap_or_default()))
        .collect();
    let mut all = json!({});
    for resource in quota["spec"]["hard"].as_object().into_iter().flatten().map(|(name, _)| name) {
        let sum: f64 = live.iter().filter_map(|it| usage_of(it, resource)).sum();
        all[resource] = json!(sum.to_string());
    }
    all
}

/// How much of a resource one Pod requests; `None` if it requests none.
fn usage_of(pod: &Value, resource: &str) -> Option<f64> {
    let sum = |list: &str, name: &str| {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        containers.map(|it| quantity(&it["resources"][list][name])).sum::<Option<f64>>()
    };
    match resource {
        "pods" | "count/pods" => Some(1.0),
        _ => match resource.split_once('.') {
            Some(("requests", name)) => sum("requests", name),
            Some(("limits", name)) => sum("limits", name),
            None if ["cpu", "memory"].contains(&resource) => sum("requests", resource),
            // Of another resource.
            _ => Some(0.0),
        },
    }
}

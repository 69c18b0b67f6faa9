//! Checks whether a Pod of a pool equals a container's own Pod. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, PodSpec, ResourceRequirements, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::quantity;

/// Returns the first difference between an offered Pod and the wanted one; `None` if it is suitable.
///
/// Compares everything that decides what a container may do and use. Does not compare names, additions of the server
/// (tolerations, priorities, DNS), and logins for images.
pub(super) fn misfit(wanted: &PodSpec, offered: &PodSpec) -> Option<String> {
    // A named network also provides names.
    if wanted.dns_config.is_some() {
        return Some("its network has a name".into());
    }
    let is_set = |it: Option<bool>| it == Some(true);
    let mut host = [offered.host_network, offered.host_pid, offered.host_ipc, offered.share_process_namespace];
    if host.iter_mut().any(|it| is_set(*it)) {
        return Some("namespaces of the node or of another container".into());
    }
    let empty_map = |it: &Option<BTreeMap<String, String>>| it.clone().unwrap_or_default();
    let differing = [
        (wanted.restart_policy == offered.restart_policy, "restartPolicy"),
        (
            wanted.automount_service_account_token == offered.automount_service_account_token,
            "automountServiceAccountToken",
        ),
        (wanted.enable_service_links == offered.enable_service_links, "enableServiceLinks"),
        (wanted.runtime_class_name == offered.runtime_class_name, "runtimeClassName"),
        (wanted.security_context == offered.security_context, "securityContext"),
        (empty_map(&wanted.node_selector) == empty_map(&offered.node_selector), "nodeSelector"),
        (list(&wanted.host_aliases) == list(&offered.host_aliases), "hostAliases"),
        (list(&offered.ephemeral_containers).is_empty(), "ephemeralContainers"),
        (same_volumes(list(&wanted.volumes), list(&offered.volumes)), "volumes"),
    ];
    if let Some((_, field)) = differing.into_iter().find(|it| !it.0) {
        return Some(format!("spec.{field}"));
    }
    let init = containers(list(&wanted.init_containers), list(&offered.init_containers), "initContainers");
    init.or_else(|| containers(&wanted.containers, &offered.containers, "containers"))
}

fn list<T>(all: &Option<Vec<T>>) -> &[T] {
    all.as_deref().unwrap_or_default()
}

fn containers(wanted: &[Container], offered: &[Container], field: &str) -> Option<String> {
    if wanted.len() != offered.len() {
        return Some(format!("the number of spec.{field}"));
    }
    let pairs = wanted.iter().zip(offered);
    pairs.into_iter().find_map(|(wanted, offered)| Some(format!("spec.{field}.{}", container(wanted, offered)?)))
}

/// The field in which two containers differ.
fn container(wanted: &Container, offered: &Container) -> Option<&'static str> {
    let is_true = |it: Option<bool>| it == Some(true);
    let fields = [
        (wanted.name == offered.name, "name"),
        (wanted.image == offered.image, "image"),
        (list(&wanted.command) == list(&offered.command), "command"),
        (list(&offered.args).is_empty(), "args"),
        (list(&offered.env).is_empty() && list(&offered.env_from).is_empty(), "env"),
        (wanted.working_dir == offered.working_dir, "workingDir"),
        (wanted.security_context == offered.security_context, "securityContext"),
        (list(&wanted.volume_mounts) == list(&offered.volume_mounts), "volumeMounts"),
        (list(&offered.volume_devices).is_empty(), "volumeDevices"),
        (offered.lifecycle.is_none(), "lifecycle"),
        (offered.liveness_probe.is_none() && offered.startup_probe.is_none(), "livenessProbe"),
        (is_true(wanted.stdin) == is_true(offered.stdin) && !is_true(offered.tty), "stdin"),
        (same_resources(wanted.resources.as_ref(), offered.resources.as_ref()), "resources"),
    ];
    fields.into_iter().find(|it| !it.0).map(|it| it.1)
}

fn same_resources(wanted: Option<&ResourceRequirements>, offered: Option<&ResourceRequirements>) -> bool {
    let none = ResourceRequirements::default();
    let (wanted, offered) = (wanted.unwrap_or(&none), offered.unwrap_or(&none));
    same_amounts(wanted.limits.as_ref(), offered.limits.as_ref())
        && same_amounts(wanted.requests.as_ref(), offered.requests.as_ref())
}

type Amounts = BTreeMap<String, Quantity>;

fn same_amounts(wanted: Option<&Amounts>, offered: Option<&Amounts>) -> bool {
    let none = Amounts::new();
    let (wanted, offered) = (wanted.unwrap_or(&none), offered.unwrap_or(&none));
    let same = |(name, amount): (&String, &Quantity)| offered.get(name).is_some_and(|it| quantity::is_same(amount, it));
    wanted.len() == offered.len() && wanted.iter().all(same)
}

/// Compares volumes in any order.
fn same_volumes(wanted: &[Volume], offered: &[Volume]) -> bool {
    let has = |volume: &Volume| offered.iter().any(|it| it.name == volume.name && same_volume(volume, it));
    wanted.len() == offered.len() && wanted.iter().all(has)
}

fn same_volume(wanted: &Volume, offered: &Volume) -> bool {
    let without_size = |it: &Volume| {
        let empty_dir = it.empty_dir.clone().map(|it| EmptyDirVolumeSource { size_limit: None, ..it });
        Volume { empty_dir, ..it.clone() }
    };
    let size = |it: &Volume| it.empty_dir.as_ref().and_then(|it| it.size_limit.clone());
    let same_size = match (size(wanted), size(offered)) {
        (Some(wanted), Some(offered)) => quantity::is_same(&wanted, &offered),
        (wanted, offered) => wanted == offered,
    };
    same_size && without_size(wanted) == without_size(offered)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Value {
        json!({
            "restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false,
            "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
            "initContainers": [{ "name": "guest", "image": "guest:1", "command": ["cp"] }],
            "containers": [{
                "name": "main", "image": "x@sha256:aa", "command": ["/.coracle/guest", "init"],
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                "resources": { "limits": { "memory": "1073741824" }, "requests": { "cpu": "100m" } },
            }],
            "volumes": [{ "name": "a", "emptyDir": { "medium": "Memory", "sizeLimit": "16777216" } }],
        })
    }

    fn found(change: impl Fn(&mut Value)) -> Option<String> {
        let mut offered = pod();
        change(&mut offered);
        misfit(&serde_json::from_value(pod()).unwrap(), &serde_json::from_value(offered).unwrap())
    }

    #[test]
    fn a_pod_with_defaults_of_the_server_is_suitable() {
        let completed = |it: &mut Value| {
            it["containers"][0]["resources"]["limits"]["memory"] = json!("1Gi");
            it["containers"][0]["terminationMessagePath"] = json!("/dev/termination-log");
            it["volumes"][0]["emptyDir"]["sizeLimit"] = json!("16Mi");
            it["dnsPolicy"] = json!("ClusterFirst");
            it["hostname"] = json!("pool-abc");
            it["tolerations"] = json!([{ "operator": "Exists" }]);
            it["serviceAccountName"] = json!("default");
        };
        assert_eq!(found(completed), None);
    }

    #[test]
    fn a_different_pod_is_reported_by_its_field() {
        let cases: [(&str, Value); 14] = [
            ("/restartPolicy", json!("Always")),
            ("/automountServiceAccountToken", json!(true)),
            ("/hostNetwork", json!(true)),
            ("/hostPID", json!(true)),
            ("/securityContext", json!({})),
            ("/runtimeClassName", json!("other")),
            ("/containers/0/image", json!("x@sha256:bb")),
            ("/containers/0/command", json!(["sleep"])),
            ("/containers/0/env", json!([{ "name": "A", "value": "b" }])),
            ("/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
            ("/containers/0/securityContext/capabilities/add", json!(["NET_ADMIN"])),
            ("/containers/0/resources/limits/memory", json!("2Gi")),
            ("/initContainers", json!([])),
            ("/volumes/0", json!({ "name": "a", "hostPath": { "path": "/" } })),
        ];
        for (path, value) in cases {
            let (parent, field) = path.rsplit_once('/').unwrap();
            let why = found(|it| {
                let parent = it.pointer_mut(parent).unwrap();
                match field.parse::<usize>() {
                    Ok(at) => parent[at] = value.clone(),
                    Err(_) => parent[field] = value.clone(),
                }
            });
            assert!(why.is_some(), "{path}");
        }
        let more = found(|it| it["containers"] = json!([it["containers"][0], { "name": "side", "image": "y" }]));
        assert_eq!(more.as_deref(), Some("the number of spec.containers"));
    }
}

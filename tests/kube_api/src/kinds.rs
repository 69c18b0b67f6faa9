//! The kinds of objects, and their paths.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::sandboxes::{AGENTS, EXTENSIONS};

/// A kind of object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) name: &'static str,
    pub(crate) namespaced: bool,
}

const fn core(plural: &'static str, name: &'static str, namespaced: bool) -> Kind {
    Kind { group: "", version: "v1", plural, name, namespaced }
}

const fn grouped(group: &'static str, plural: &'static str, name: &'static str, namespaced: bool) -> Kind {
    Kind { group, version: "v1", plural, name, namespaced }
}

const fn sandboxes(group: &'static str, plural: &'static str, name: &'static str) -> Kind {
    Kind { group, version: "v1beta1", plural, name, namespaced: true }
}

/// All kinds.
pub(crate) const KINDS: &[Kind] = &[
    core("pods", "Pod", true),
    core("services", "Service", true),
    core("configmaps", "ConfigMap", true),
    core("secrets", "Secret", true),
    core("persistentvolumeclaims", "PersistentVolumeClaim", true),
    core("resourcequotas", "ResourceQuota", true),
    core("serviceaccounts", "ServiceAccount", true),
    core("events", "Event", true),
    core("nodes", "Node", false),
    core("namespaces", "Namespace", false),
    grouped("networking.k8s.io", "networkpolicies", "NetworkPolicy", true),
    grouped("coordination.k8s.io", "leases", "Lease", true),
    grouped("node.k8s.io", "runtimeclasses", "RuntimeClass", false),
    grouped("storage.k8s.io", "storageclasses", "StorageClass", false),
    grouped("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", false),
    sandboxes(AGENTS, "sandboxes", "Sandbox"),
    sandboxes(EXTENSIONS, "sandboxclaims", "SandboxClaim"),
    sandboxes(EXTENSIONS, "sandboxtemplates", "SandboxTemplate"),
    sandboxes(EXTENSIONS, "sandboxwarmpools", "SandboxWarmPool"),
];

impl Kind {
    /// Whether a cluster has the kind only with agent-sandbox.
    pub(crate) fn is_of_agent_sandbox(&self) -> bool {
        [AGENTS, EXTENSIONS].contains(&self.group)
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// The target of a request.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kind: &'static Kind,
    /// The namespace of a namespaced kind; `None` means all.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// `None` for an unknown path.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let decoded = path.split('/').map(|it| percent_decode_str(it).decode_utf8_lossy().into_owned());
        let words: Vec<String> = decoded.filter(|it| !it.is_empty()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (group, version, rest) = match words.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let find = |plural: &str, namespaced: bool| {
            KINDS.iter().find(|it| {
                it.group == group && it.version == version && it.plural == plural && it.namespaced == namespaced
            })
        };
        let owned = |it: Option<&&str>| it.map(|it| (*it).to_owned());
        if let ["namespaces", namespace, plural, rest @ ..] = rest
            && let Some(kind) = find(plural, true)
        {
            let namespace = Some((*namespace).to_owned());
            return Some(Self { kind, namespace, name: owned(rest.first()), subresource: owned(rest.get(1)) });
        }
        let (plural, rest) = rest.split_first()?;
        if let Some(kind) = find(plural, false).filter(|_| rest.get(1).is_none_or(|it| *it == "status")) {
            return Some(Self { kind, namespace: None, name: owned(rest.first()), subresource: owned(rest.get(1)) });
        }
        let kind = find(plural, true).filter(|_| rest.is_empty())?;
        Some(Self { kind, namespace: None, name: None, subresource: None })
    }
}

/// The answer to a question of discovery.
pub(crate) fn discovery(path: &str) -> Option<Value> {
    let groups = ["networking.k8s.io", "coordination.k8s.io", "node.k8s.io", "storage.k8s.io", "authorization.k8s.io"];
    match path.trim_matches('/').split('/').collect::<Vec<_>>().as_slice() {
        ["api"] => Some(json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })),
        ["apis"] => {
            let groups: Vec<Value> = groups.iter().map(|it| group(it)).collect();
            Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
        }
        ["apis", name] if groups.contains(name) => Some(group(name)),
        ["api", "v1"] => Some(resources("", "v1")),
        ["apis", name, "v1"] if groups.contains(name) => Some(resources(name, &format!("{name}/v1"))),
        _ => None,
    }
}

fn group(name: &str) -> Value {
    let version = json!({ "groupVersion": format!("{name}/v1"), "version": "v1" });
    json!({ "kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": [version], "preferredVersion": version })
}

fn resources(group: &str, version: &str) -> Value {
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let all: Vec<Value> = KINDS
        .iter()
        .filter(|it| it.group == group)
        .map(|it| {
            json!({
                "name": it.plural, "singularName": it.name.to_lowercase(), "namespaced": it.namespaced, "kind": it.name,
                "verbs": verbs,
            })
        })
        .collect();
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": all })
}

#[cfg(test)]
mod tests {
    use super::Target;

    fn parsed(path: &str) -> String {
        Target::parse(path).map_or("nothing".into(), |it| {
            format!("{} {:?} {:?} {:?}", it.kind.name, it.namespace, it.name, it.subresource)
        })
    }

    #[test]
    fn paths_lead_to_objects() {
        assert_eq!(parsed("/api/v1/namespaces/a/pods/p/exec"), r#"Pod Some("a") Some("p") Some("exec")"#);
        assert_eq!(parsed("/api/v1/pods"), "Pod None None None");
        assert_eq!(parsed("/api/v1/namespaces/a"), r#"Namespace None Some("a") None"#);
        assert_eq!(parsed("/apis/coordination.k8s.io/v1/namespaces/a/leases"), r#"Lease Some("a") None None"#);
        assert_eq!(parsed("/api/v1/namespaces/a/leases"), "nothing");
        assert_eq!(parsed("/api/v1/pods/p"), "nothing");
    }
}

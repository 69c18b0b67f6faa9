//! Validates objects: names, labels, annotations, and fields of a Pod.

use serde_json::Value;

use crate::kinds::Kind;
use crate::quantity::quantity;
use crate::status::{Cause, Refusal};

const MAX_ANNOTATIONS: usize = 256 << 10;

const NAME_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
    must start and end with an alphanumeric character";

const LABEL_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character";

const KEY_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character";

/// An error of an object.
#[derive(Debug, Default)]
struct Causes(Vec<Cause>);

impl Causes {
    fn invalid(&mut self, field: impl Into<String>, value: &str, why: &str) {
        self.0.push(Cause { field: field.into(), message: format!("Invalid value: \"{value}\": {why}") });
    }

    fn required(&mut self, field: impl Into<String>) {
        self.0.push(Cause { field: field.into(), message: "Required value".into() });
    }
}

/// Checks an object that is to be.
pub(crate) fn validate(kind: &Kind, object: &Value) -> Result<(), Refusal> {
    let mut causes = Causes::default();
    metadata(kind, object, &mut causes);
    if kind.name == "Pod" {
        pod(&object["spec"], &mut causes);
    }
    let required: &[&str] = match kind.name {
        "SandboxClaim" => &["/spec/warmPoolRef/name"],
        "SandboxWarmPool" => &["/spec/sandboxTemplateRef/name"],
        "SandboxTemplate" | "Sandbox" => &["/spec/podTemplate/spec"],
        _ => &[],
    };
    for path in required.iter().filter(|it| object.pointer(it).is_none()) {
        causes.required(path.trim_start_matches('/').replace('/', "."));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if causes.0.is_empty() { Ok(()) } else { Err(Refusal::invalid(kind.name, name, &causes.0)) }
}

fn metadata(kind: &Kind, object: &Value, causes: &mut Causes) {
    let meta = &object["metadata"];
    match meta["name"].as_str().unwrap_or_default() {
        "" => causes.required("metadata.name: name or generateName is required"),
        name if kind.name == "Service" && !is_dns_label(name) => {
            causes.invalid(
                "metadata.name",
                name,
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-'",
            );
        }
        name if !is_dns_name(name) => causes.invalid("metadata.name", name, NAME_RULE),
        _ => {}
    }
    for (key, value) in meta["labels"].as_object().into_iter().flatten() {
        key_rule("metadata.labels", key, causes);
        match value.as_str() {
            Some(text) if is_label_value(text) => {}
            Some(text) if text.len() > 63 => {
                causes.invalid("metadata.labels", text, "must be no more than 63 characters");
            }
            other => causes.invalid("metadata.labels", other.unwrap_or_default(), LABEL_RULE),
        }
    }
    let mut bytes = 0;
    for (key, value) in meta["annotations"].as_object().into_iter().flatten() {
        key_rule("metadata.annotations", &key.to_lowercase(), causes);
        match value.as_str() {
            Some(text) => bytes += key.len() + text.len(),
            None => causes.invalid(format!("metadata.annotations[{key}]"), &value.to_string(), "must be a string"),
        }
    }
    if bytes > MAX_ANNOTATIONS {
        let message = format!("Too long: must have at most {MAX_ANNOTATIONS} bytes");
        causes.0.push(Cause { field: "metadata.annotations".into(), message });
    }
    for (at, owner) in meta["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                causes.required(format!("metadata.ownerReferences[{at}].{field}"));
            }
        }
    }
}

fn key_rule(field: &str, key: &str, causes: &mut Causes) {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let named = !name.is_empty() && is_label_value(name);
    if !named || prefix.is_some_and(|it| !is_dns_name(it)) {
        causes.invalid(field, key, KEY_RULE);
    }
}

fn pod(spec: &Value, causes: &mut Causes) {
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if containers.is_empty() {
        causes.required("spec.containers");
    }
    if let Some(policy) = spec["restartPolicy"].as_str()
        && !["Always", "OnFailure", "Never"].contains(&policy)
    {
        causes.invalid("spec.restartPolicy", policy, "supported values: \"Always\", \"OnFailure\", \"Never\"");
    }
    let mut volumes = Vec::new();
    for (at, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let name = volume["name"].as_str().unwrap_or_default();
        if !is_dns_label(name) {
            causes.invalid(format!("spec.volumes[{at}].name"), name, NAME_RULE);
        }
        if volumes.contains(&name) {
            causes.0.push(Cause {
                field: format!("spec.volumes[{at}].name"),
                message: format!("Duplicate value: \"{name}\""),
            });
        }
        if volume.as_object().is_none_or(|it| it.len() != 2) {
            causes.required(format!("spec.volumes[{at}]: must specify exactly one volume type"));
        }
        volumes.push(name);
    }
    let init = spec["initContainers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut names = Vec::new();
    for (list, all) in [("initContainers", init), ("containers", containers)] {
        for (at, it) in all.iter().enumerate() {
            let field = format!("spec.{list}[{at}]");
            let name = it["name"].as_str().unwrap_or_default();
            if names.contains(&name) {
                causes
                    .0
                    .push(Cause { field: format!("{field}.name"), message: format!("Duplicate value: \"{name}\"") });
            }
            names.push(name);
            container(&field, it, &volumes, causes);
        }
    }
}

fn container(field: &str, it: &Value, volumes: &[&str], causes: &mut Causes) {
    match it["name"].as_str().unwrap_or_default() {
        "" => causes.required(format!("{field}.name")),
        name if !is_dns_label(name) => causes.invalid(format!("{field}.name"), name, NAME_RULE),
        _ => {}
    }
    let image = it["image"].as_str().unwrap_or_default();
    if image.is_empty() {
        causes.required(format!("{field}.image"));
    } else if image.trim() != image {
        causes.invalid(format!("{field}.image"), image, "must not have leading or trailing whitespace");
    }
    let mut paths = Vec::new();
    for (at, mount) in it["volumeMounts"].as_array().into_iter().flatten().enumerate() {
        let name = mount["name"].as_str().unwrap_or_default();
        if !volumes.contains(&name) {
            causes.0.push(Cause {
                field: format!("{field}.volumeMounts[{at}].name"),
                message: format!("Not found: \"{name}\""),
            });
        }
        let path = mount["mountPath"].as_str().unwrap_or_default();
        if path.is_empty() {
            causes.required(format!("{field}.volumeMounts[{at}].mountPath"));
        } else if paths.contains(&path) {
            causes.invalid(format!("{field}.volumeMounts[{at}].mountPath"), path, "must be unique");
        }
        paths.push(path);
    }
    for (at, variable) in it["env"].as_array().into_iter().flatten().enumerate() {
        let name = variable["name"].as_str().unwrap_or_default();
        if name.is_empty() || name.contains('=') || name.starts_with(|c: char| c.is_ascii_digit()) {
            causes.invalid(format!("{field}.env[{at}].name"), name, "a valid environment variable name is required");
        }
    }
    let resources = &it["resources"];
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            let at = format!("{field}.resources.{list}[{name}]");
            let Some(amount) = quantity(value) else {
                causes.invalid(at, &value.to_string(), "quantities must match the regular expression");
                continue;
            };
            let limit = quantity(&resources["limits"][name]);
            if list == "requests" && limit.is_some_and(|it| amount > it) {
                causes.invalid(at, &value.to_string(), &format!("must be less than or equal to {name} limit"));
            }
        }
    }
}

fn is_alphanumeric(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.chars().all(|it| is_alphanumeric(it) || it == '-')
        && text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
}

fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

fn is_label_value(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric();
    text.is_empty()
        || (text.len() <= 63
            && text.chars().all(|it| good(it) || "-_.".contains(it))
            && text.starts_with(good)
            && text.ends_with(good))
}

/// Fields of a Pod's specification that may change.
const MUTABLE: &[&str] =
    &["activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates", "nodeName"];

/// Checks a change of a Pod.
pub(crate) fn validate_change(name: &str, before: &Value, after: &Value) -> Result<(), Refusal> {
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for field in MUTABLE {
            spec.as_object_mut().map(|it| it.remove(*field));
        }
        for container in spec["containers"].as_array_mut().into_iter().flatten() {
            container["image"] = Value::Null;
        }
        spec
    };
    if fixed(before) == fixed(after) {
        return Ok(());
    }
    let message = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, \
        `spec.activeDeadlineSeconds`, `spec.terminationGracePeriodSeconds`, `spec.tolerations`";
    Err(Refusal::invalid("Pod", name, &[Cause { field: "spec".into(), message: message.into() }]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::KINDS;

    fn refused(pod: &Value) -> String {
        validate(&KINDS[0], pod).err().map_or_else(String::new, |it| it.to_json()["message"].to_string())
    }

    #[test]
    fn a_pod_has_to_keep_the_rules() {
        let container = json!({ "name": "main", "image": "busybox" });
        let good = json!({
            "metadata": { "name": "a-1", "labels": { "app.kubernetes.io/name": "x_1.y" }, "annotations": { "coracle.dev/Created": "a:b" } },
            "spec": { "containers": [container] },
        });
        assert_eq!(refused(&good), "");
        let with = |change: fn(&mut Value)| {
            let mut pod = good.clone();
            change(&mut pod);
            refused(&pod)
        };
        assert!(with(|it| it["metadata"]["name"] = json!("A_b")).contains("metadata.name"));
        assert!(with(|it| it["metadata"]["labels"] = json!({ "at": "12:00" })).contains("metadata.labels"));
        assert!(with(|it| it["metadata"]["annotations"] = json!({ "a": "x".repeat(300_000) })).contains("Too long"));
        assert!(with(|it| it["spec"]["containers"] = json!([])).contains("spec.containers: Required"));
        let mount = json!([{ "name": "main", "image": "b", "volumeMounts": [{ "name": "none", "mountPath": "/x" }] }]);
        let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": mount } });
        assert!(refused(&pod).contains("Not found"));
        let resources = json!({ "limits": { "memory": "1Mi" }, "requests": { "memory": "2Mi" } });
        let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "m", "image": "b", "resources": resources }] } });
        assert!(refused(&pod).contains("less than or equal"));
    }
}

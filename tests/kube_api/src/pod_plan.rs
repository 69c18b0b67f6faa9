//! From a Pod's specification to its containers.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use coracle_runtime::Image;
use coracle_types::Ids;
use serde_json::{Value, json};

use crate::backing::{ContainerPlan, PlannedVolume};
use crate::cluster::Cluster;
use crate::quantity::{bytes, quantity};
use crate::selector::Selector;
use crate::store::Key;

/// Capabilities of a container that drops none.
const USUAL_CAPABILITIES: &[&str] = &["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"];

/// A Pod to plan containers of.
#[derive(Debug)]
pub(crate) struct PodPlan<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) pod: &'a Value,
}

impl PodPlan<'_> {
    fn uid(&self) -> &str {
        self.pod["metadata"]["uid"].as_str().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.pod["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    /// The plan of one container, or why there cannot be one.
    pub(crate) fn container(&self, spec: &Value, number: usize, image: Image) -> Result<ContainerPlan, String> {
        let pod_context = &self.pod["spec"]["securityContext"];
        let context = &spec["securityContext"];
        let setting = |name: &str| if context[name].is_null() { &pod_context[name] } else { &context[name] };
        let number_of = |name: &str| setting(name).as_u64().and_then(|it| u32::try_from(it).ok());
        let user = number_of("runAsUser").map(|uid| Ids { uid, gid: number_of("runAsGroup").unwrap_or(0) });
        let is_root = user.map_or(image.config.user.is_empty() || image.config.user == "root", |it| it.uid == 0);
        if setting("runAsNonRoot") == true && is_root {
            return Err("container has runAsNonRoot and image will run as root".into());
        }
        let dropped = words(&context["capabilities"]["drop"]).iter().any(|it| it == "ALL");
        let mut capabilities = words(&context["capabilities"]["add"]);
        if !dropped {
            capabilities.extend(USUAL_CAPABILITIES.iter().map(|it| (*it).to_owned()));
        }
        let limits = &spec["resources"]["limits"];
        Ok(ContainerPlan {
            pod: self.uid().to_owned(),
            number,
            image,
            command: words(&spec["command"]),
            args: words(&spec["args"]),
            env: self.env(spec),
            user,
            workdir: spec["workingDir"].as_str().map(str::to_owned),
            volumes: self.volumes(spec)?,
            read_only: context["readOnlyRootFilesystem"] == true,
            memory: bytes(&limits["memory"]),
            cpus: quantity(&limits["cpu"]),
            capabilities,
            hosts: self.hosts(),
            hostname: self.hostname(),
            network: (self.cluster.options.network && !self.is_cut_off()).then(|| self.names()),
        })
    }

    fn hostname(&self) -> String {
        let name = self.pod["spec"]["hostname"].as_str().or_else(|| self.pod["metadata"]["name"].as_str());
        name.unwrap_or_default().chars().take(63).collect()
    }

    fn env(&self, spec: &Value) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let fixed = [("KUBERNETES_SERVICE_HOST", "10.96.0.1"), ("KUBERNETES_SERVICE_PORT", "443")];
        all.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for variable in spec["env"].as_array().into_iter().flatten() {
            let Some(name) = variable["name"].as_str() else { continue };
            let value = variable["value"].as_str().map(str::to_owned);
            all.insert(name.to_owned(), value.or_else(|| self.referred(&variable["valueFrom"])).unwrap_or_default());
        }
        all
    }

    /// A value that refers to another object.
    fn referred(&self, from: &Value) -> Option<String> {
        if let Some(path) = from["fieldRef"]["fieldPath"].as_str() {
            return path.split('.').fold(self.pod, |at, part| &at[part]).as_str().map(str::to_owned);
        }
        let (plural, reference) = match (&from["configMapKeyRef"], &from["secretKeyRef"]) {
            (Value::Null, it) => ("secrets", it),
            (it, _) => ("configmaps", it),
        };
        let name = reference["name"].as_str()?.to_owned();
        let object = self.cluster.store.get(&Key { plural, namespace: self.namespace().to_owned(), name })?;
        object["data"][reference["key"].as_str()?].as_str().map(str::to_owned)
    }

    fn hosts(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for alias in self.pod["spec"]["hostAliases"].as_array().into_iter().flatten() {
            for name in words(&alias["hostnames"]) {
                lines.push(format!("{name}:{}", alias["ip"].as_str().unwrap_or_default()));
            }
        }
        lines
    }

    /// Whether a policy forbids all outgoing traffic.
    fn is_cut_off(&self) -> bool {
        let policies = self.cluster.store.list("networkpolicies", Some(self.namespace())).objects;
        policies.iter().any(|(_, policy)| {
            let spec = &policy["spec"];
            let denies = words(&spec["policyTypes"]).iter().any(|it| it == "Egress")
                && spec["egress"].as_array().is_none_or(Vec::is_empty);
            denies && self.is_matched(&spec["podSelector"]["matchLabels"])
        })
    }

    fn is_matched(&self, labels: &Value) -> bool {
        let pairs = labels.as_object().into_iter().flatten();
        let text: Vec<String> = pairs.map(|(name, it)| format!("{name}={}", it.as_str().unwrap_or_default())).collect();
        Selector::parse(&text.join(","), "").is_ok_and(|it| it.admits(self.pod))
    }

    /// Names by which other Pods reach it: of the services that choose it.
    fn names(&self) -> Vec<String> {
        let namespace = self.namespace();
        let mut names = vec![self.hostname()];
        for (key, service) in self.cluster.store.list("services", Some(namespace)).objects {
            let selector = &service["spec"]["selector"];
            if selector.as_object().is_some_and(|it| !it.is_empty()) && self.is_matched(selector) {
                let name = key.name;
                names.push(format!("{name}.{namespace}"));
                names.push(format!("{name}.{namespace}.svc.cluster.local"));
                names.push(name);
            }
        }
        names
    }

    fn volumes(&self, spec: &Value) -> Result<Vec<PlannedVolume>, String> {
        let mut planned = Vec::new();
        for mount in spec["volumeMounts"].as_array().into_iter().flatten() {
            let name = mount["name"].as_str().unwrap_or_default();
            let target = mount["mountPath"].as_str().unwrap_or_default().to_owned();
            let volumes = self.pod["spec"]["volumes"].as_array().into_iter().flatten();
            let volume = volumes.into_iter().find(|it| it["name"] == name).ok_or("no such volume")?;
            let empty = &volume["emptyDir"];
            if empty["medium"] == "Memory" && self.mounts_of(name) == 1 {
                planned.push(PlannedVolume::Memory { target, bytes: bytes(&empty["sizeLimit"]) });
                continue;
            }
            let mut source = self.directory(name, volume)?;
            if let Some(path) = mount["subPath"].as_str() {
                source = source.join(path);
                make(&source)?;
            }
            planned.push(PlannedVolume::Directory { source, target, writable: mount["readOnly"] != true });
        }
        Ok(planned)
    }

    fn mounts_of(&self, volume: &str) -> usize {
        let spec = &self.pod["spec"];
        let all = ["initContainers", "containers"].into_iter().flat_map(|it| spec[it].as_array().into_iter().flatten());
        all.flat_map(|it| it["volumeMounts"].as_array().into_iter().flatten()).filter(|it| it["name"] == volume).count()
    }

    /// The directory on this machine that is a volume.
    fn directory(&self, name: &str, volume: &Value) -> Result<PathBuf, String> {
        if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            let (namespace, name) = (self.namespace().to_owned(), claim.to_owned());
            let key = Key { plural: "persistentvolumeclaims", namespace, name };
            let found = self.cluster.store.get(&key).ok_or(format!("persistentvolumeclaim \"{claim}\" not found"))?;
            let uid = found["metadata"]["uid"].as_str().unwrap_or_default();
            let dir = self.cluster.dir.join("claims").join(uid);
            make(&dir)?;
            return Ok(dir);
        }
        let dir = pod_dir(self.cluster, self.uid()).join(name);
        make(&dir)?;
        for (kind, plural) in [("configMap", "configmaps"), ("secret", "secrets")] {
            let source = volume[kind]["name"].as_str().or_else(|| volume[kind]["secretName"].as_str());
            let Some(source) = source else { continue };
            let key = Key { plural, namespace: self.namespace().to_owned(), name: source.to_owned() };
            let object = self.cluster.store.get(&key).ok_or(format!("{kind} \"{source}\" not found"))?;
            for (file, text) in object["data"].as_object().into_iter().flatten() {
                write(&dir.join(file), text.as_str().unwrap_or_default())?;
            }
        }
        if volume["projected"].is_object() {
            write(&dir.join("token"), "a-token-of-the-service-account")?;
        }
        Ok(dir)
    }
}

/// The directory of a Pod's volumes.
pub(crate) fn pod_dir(cluster: &Cluster, uid: &str) -> PathBuf {
    cluster.dir.join("pods").join(uid)
}

/// A directory that all users of containers may write to, as an `emptyDir` is.
fn make(dir: &Path) -> Result<(), String> {
    let made = std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)));
    made.map_err(|err| format!("cannot make `{}`: {err}", dir.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|err| format!("cannot write `{}`: {err}", path.display()))
}

pub(crate) fn words(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// A container in a Pod's status, in that state.
pub(crate) fn container_status(spec: &Value, image: Option<&Image>, id: Option<&str>, state: &Value) -> Value {
    let running = state["running"].is_object();
    let image_id =
        image.map(|it| format!("{}@{}", spec["image"].as_str().unwrap_or_default(), crate::registry::digest_of(it)));
    json!({
        "name": spec["name"], "image": spec["image"], "imageID": image_id.unwrap_or_default(), "restartCount": 0,
        "containerID": id.map(|it| format!("containerd://{it}")), "ready": running, "started": running, "state": state,
        "lastState": {},
    })
}

//! What services see of the host and of volumes: binds, named volumes, tmpfs, files of configs and secrets.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{Access, ContainerPath, Mount, hold_in_place, leads_to_protected, mounts_over};
use serde_json::{Map, Value, json};

use super::Admission;
use super::resources::{as_config, is_text};
use super::schema::{entries, is_empty, words};
use super::service::excerpt;
use crate::diagnostics::{Location, Violation};

/// Where nothing is mounted, nor below. `/etc` and what lies there is fine: a service has no guest that writes there.
const NOT_BELOW: &[&str] = &["/proc", "/sys", "/dev", "/.coracle"];

impl Admission<'_> {
    pub(super) fn mounts(&mut self, name: &str, service: &Value, out: &mut Map<String, Value>) {
        let location = Location::service(name);
        let mut targets = BTreeSet::new();
        let mut binds = Vec::new();
        let mut volumes = Vec::new();
        for volume in service.get("volumes").and_then(Value::as_array).into_iter().flatten() {
            let Some(at) = self.target(location, "volumes", volume.get("target"), &mut targets) else { continue };
            volumes.extend(match volume.get("type").and_then(Value::as_str).unwrap_or_default() {
                "bind" => self.bind(location, volume, at, &mut binds),
                "volume" => self.named(location, volume, &at),
                "tmpfs" => self.memory(location, volume, &at),
                other => {
                    let why = "may be `bind`, `volume` or `tmpfs`";
                    self.refuse(location, Violation::within("volumes", "volumes.type", other), why);
                    None
                }
            });
        }
        if let Some(tmpfs) = service.get("tmpfs").filter(|it| !is_empty(it)) {
            self.tmpfs(location, tmpfs, &mut targets, out);
        }
        let stored = self.stored_files(location, service, &mut targets, &mut binds);
        out.extend(stored);
        self.as_a_user(location, service, &binds, out);
        volumes.extend(self.covered(location, &targets, &mut binds));
        if !volumes.is_empty() {
            out.insert("volumes".into(), Value::Array(volumes));
        }
        self.binds.extend(binds.into_iter().map(|it| (name.to_owned(), it)));
    }

    /// A path inside that nothing else of the service takes.
    fn target(
        &mut self,
        location: Location<'_>,
        key: &str,
        target: Option<&Value>,
        targets: &mut BTreeSet<ContainerPath>,
    ) -> Option<ContainerPath> {
        let text = target.and_then(Value::as_str).unwrap_or_default();
        let violation = Violation::new(key, text);
        let at = match ContainerPath::parse(text) {
            Ok(at) => at,
            Err(err) => {
                self.refuse(location, violation, &format!("has a target that is no path: {}", err.why));
                return None;
            }
        };
        if at == ContainerPath::root() || NOT_BELOW.iter().any(|it| at.is_beneath(it)) {
            self.refuse(location, violation, "has a target where nothing is mounted");
            return None;
        }
        if !targets.insert(at.clone()) {
            self.refuse(location, violation, "has a target twice");
            return None;
        }
        Some(at)
    }

    fn bind(
        &mut self,
        location: Location<'_>,
        volume: &Value,
        at: ContainerPath,
        binds: &mut Vec<Mount>,
    ) -> Option<Value> {
        self.only(location, volume, &["type", "source", "target", "read_only", "bind", "consistency"]);
        for (key, value) in entries(volume.get("bind")) {
            let fine = match key {
                "create_host_path" => true,
                "propagation" => is_empty(value) || value == "rprivate" || value == "private",
                _ => is_empty(value),
            };
            if !fine {
                let (key, value) = (format!("bind.{key}"), excerpt(value));
                self.refuse(location, Violation::within("volumes", &key, &value), "is not allowed on a bind");
            }
        }
        let source = volume.get("source").and_then(Value::as_str).unwrap_or_default();
        let violation = Violation::within("volumes", "volumes", source);
        if !self.rules.policy.binds {
            let why = "binds a directory of the host, which is not granted: use a named volume";
            self.refuse(location, violation.unless("workspace.mode"), why);
            return None;
        }
        let host = self.host_file(location, violation)?;
        let read_only = volume.get("read_only") == Some(&Value::Bool(true));
        if !read_only && leads_to_protected(host.real(), &self.protected()) {
            let why = "is, or leads to, a protected path: add `:ro`, or bind the directory above it";
            self.refuse(location, violation.unless("workspace.protected"), why);
            return None;
        }
        let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        let mount = Mount { host, at, access };
        let written = bind_of(&mount);
        binds.push(mount);
        Some(written)
    }

    fn named(&mut self, location: Location<'_>, volume: &Value, at: &ContainerPath) -> Option<Value> {
        self.only(location, volume, &["type", "source", "target", "read_only", "volume", "consistency"]);
        let mut out = json!({ "type": "volume", "target": at.as_str() });
        if let Some(source) = volume.get("source").and_then(Value::as_str).filter(|it| !it.is_empty()) {
            if entries(self.model.get("volumes")).all(|(it, _)| it != source) {
                self.refuse(location, Violation::new("volumes", source), "names a volume that the file does not have");
            }
            out["source"] = source.into();
        }
        for (key, value) in entries(volume.get("volume")).filter(|(_, value)| !is_empty(value)) {
            if key == "nocopy" {
                out["volume"] = json!({ "nocopy": true });
            } else {
                let value = excerpt(value);
                self.refuse(location, Violation::within("volumes", key, &value), "is not allowed on a volume");
            }
        }
        out["read_only"] = (volume.get("read_only") == Some(&Value::Bool(true))).into();
        Some(out)
    }

    fn memory(&mut self, location: Location<'_>, volume: &Value, at: &ContainerPath) -> Option<Value> {
        self.only(location, volume, &["type", "target", "read_only", "tmpfs", "consistency"]);
        let mut out = json!({ "type": "tmpfs", "target": at.as_str() });
        for (key, value) in entries(volume.get("tmpfs")) {
            match key {
                "size" => {
                    out["tmpfs"]["size"] =
                        self.within_memory(location, Violation::within("volumes", "tmpfs.size", ""), value);
                }
                "mode" if value.is_u64() => out["tmpfs"]["mode"] = value.clone(),
                _ if is_empty(value) => {}
                key => self.refuse(location, Violation::within("volumes", key, ""), "is not allowed on a tmpfs"),
            }
        }
        Some(out)
    }

    /// The short form: a path, and options after a colon.
    fn tmpfs(
        &mut self,
        location: Location<'_>,
        tmpfs: &Value,
        targets: &mut BTreeSet<ContainerPath>,
        out: &mut Map<String, Value>,
    ) {
        let mut kept = Vec::new();
        for one in words(tmpfs).unwrap_or_default() {
            let (path, options) = one.split_once(':').unwrap_or((one, ""));
            let Some(at) = self.target(location, "tmpfs", Some(&path.into()), targets) else { continue };
            let plain = |it: &&str| {
                let value = |key: &str| it.strip_prefix(key).is_some_and(|it| it.chars().all(char::is_alphanumeric));
                ["rw", "ro", "exec", "noexec", "nosuid", "nodev"].contains(it)
                    || ["size=", "mode=", "uid=", "gid="].iter().any(|key| value(key))
            };
            for option in options.split(',').filter(|it| !it.is_empty() && !plain(it)) {
                self.refuse(location, Violation::new("tmpfs", option), "has an option that is not allowed");
            }
            kept.push(if options.is_empty() { at.to_string() } else { format!("{at}:{options}") });
        }
        out.insert("tmpfs".into(), json!(kept));
    }

    /// `configs` and `secrets` of a service, by the parts of the file that they name.
    fn stored_files(
        &mut self,
        location: Location<'_>,
        service: &Value,
        targets: &mut BTreeSet<ContainerPath>,
        binds: &mut Vec<Mount>,
    ) -> Map<String, Value> {
        let (mut configs, mut secrets) = (Vec::new(), Vec::new());
        for (key, base) in [("configs", "/"), ("secrets", "/run/secrets/")] {
            for one in service.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.only_of(location, key, one, &["source", "target", "uid", "gid", "mode"]);
                let source = one.get("source").and_then(Value::as_str).unwrap_or_default();
                let Some(part) = self.model.get(key).and_then(|it| it.get(source)) else {
                    self.refuse(location, Violation::new(key, source), "names one that the file does not have");
                    continue;
                };
                let target = one.get("target").and_then(Value::as_str).filter(|it| !it.is_empty()).unwrap_or(source);
                let target = if target.starts_with('/') { target.to_owned() } else { format!("{base}{target}") };
                let Some(at) = self.target(location, key, Some(&target.into()), targets) else { continue };
                let mut kept = one.clone();
                kept["target"] = at.as_str().into();
                if let Some(file) = part.get("file").and_then(Value::as_str) {
                    // Its errors are reported once, for the part itself.
                    let opened = HostPath::open(Path::new(file)).ok();
                    let may_be_read =
                        |host: &HostPath| self.rules.policy.host_path_problem("compose", host.real()).is_none();
                    binds.extend(opened.filter(may_be_read).map(|host| Mount { host, at, access: Access::ReadOnly }));
                }
                if key == "secrets" && !is_text(part) {
                    secrets.push(kept);
                } else {
                    if key == "secrets" {
                        kept["source"] = as_config(source).into();
                    }
                    configs.push(kept);
                }
            }
        }
        let parts = [("configs", configs), ("secrets", secrets)].into_iter().filter(|(_, it)| !it.is_empty());
        parts.map(|(key, it)| (key.to_owned(), Value::Array(it))).collect()
    }

    /// Where root inside is root outside, a file that root leaves in a bind could be one that makes others root.
    /// There is no guest in a service to see to it, so root is kept away from such binds.
    ///
    /// A uid alone would get its groups from the image, root's among them: it is written with a gid.
    fn as_a_user(&mut self, location: Location<'_>, service: &Value, binds: &[Mount], out: &mut Map<String, Value>) {
        let user = service.get("user").and_then(Value::as_str).unwrap_or_default();
        let ids: Option<Vec<u32>> = user.split(':').map(|it| it.parse().ok().filter(|it| *it > 0)).collect();
        let writable = binds.iter().find(|it| it.access == Access::ReadWrite).filter(|_| self.rules.root_is_host);
        match (ids.as_deref(), writable) {
            (Some([uid]), Some(_)) => drop(out.insert("user".into(), format!("{uid}:{uid}").into())),
            (Some([_] | [_, _]), _) => {}
            (_, Some(bind)) => {
                let source = bind.host.real().display().to_string();
                let why = "binds a directory of the host writable, and the service could be root there: add `:ro`, use a \
                           named volume, or give the service a numeric `user:` that is not 0";
                self.refuse(location, Violation::within("volumes", "volumes", &source), why);
            }
            (_, None) if !self.rules.policy.allow_root => {
                let violation = Violation::new("user", user).unless("security.allow_root");
                self.refuse(location, violation, "could be root, which is not granted: give a number that is not 0");
            }
            (_, None) => {}
        }
    }

    /// Protected paths over writable binds. `.git` is covered whole: what is missing in it could be made there, and a
    /// service does not need it.
    fn covered(
        &mut self,
        location: Location<'_>,
        targets: &BTreeSet<ContainerPath>,
        binds: &mut Vec<Mount>,
    ) -> Vec<Value> {
        let protected = self.protected();
        let mut over = Vec::new();
        for bind in binds.iter().filter(|it| it.access == Access::ReadWrite) {
            let within = |it: &ContainerPath| {
                let inside = Path::new(it.as_str()).strip_prefix(bind.at.as_str()).ok()?;
                (!inside.as_os_str().is_empty()).then(|| inside.to_owned())
            };
            let touches =
                |it: &Path| protected.iter().any(|path| it.starts_with(path) || Path::new(path).starts_with(it));
            if let Some(at) = targets.iter().find(|it| within(it).is_some_and(|it| touches(&it))) {
                let why = format!("lies on a protected path of `{}`", bind.at);
                self.refuse(location, Violation::within("volumes", "volumes", at.as_str()), &why);
            }
            over.extend(mounts_over(bind, targets, &protected));
        }
        let written = over.iter().map(bind_of).collect();
        binds.extend(over);
        written
    }

    /// Mounts directories that services bind over themselves where another service could exchange them: a service has no
    /// guest that waits until its mounts were compared, and one may start while another runs.
    pub(super) fn hold_in_place(&mut self, services: &mut Map<String, Value>) {
        let bound: Vec<PathBuf> = self.binds.iter().map(|(_, bind)| bind.host.real().to_owned()).collect();
        let directories = || bound.iter().chain(self.rules.bound_by_others).map(PathBuf::as_path);
        let mut held = Vec::new();
        for (name, service) in services {
            let Some(Value::Array(volumes)) = service.get_mut("volumes") else { continue };
            let targets = volumes.iter().filter_map(|it| ContainerPath::parse(it["target"].as_str()?).ok());
            let targets: Vec<_> = targets.collect();
            let mut over = Vec::new();
            for (_, bind) in self.binds.iter().filter(|(of, _)| of == name) {
                hold_in_place(bind, &targets, directories(), &mut over);
            }
            volumes.extend(over.iter().map(bind_of));
            // An engine may mount in this order: what lies above comes first.
            volumes.sort_by_key(|it| it["target"].as_str().map(|target| target.matches('/').count()));
            held.extend(over.into_iter().map(|mount| (name.clone(), mount)));
        }
        self.binds.extend(held);
    }

    fn protected(&self) -> Vec<String> {
        let whole = |it: &String| if it.starts_with(".git/") { ".git".to_owned() } else { it.clone() };
        self.rules.protected.iter().map(whole).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// An absolute path of the host that the model names.
    pub(super) fn host_file(&mut self, location: Location<'_>, violation: Violation<'_>) -> Option<HostPath> {
        let path = Path::new(violation.value);
        if !path.is_absolute() {
            self.refuse(location, violation, "is not an absolute path of this host");
            return None;
        }
        self.diagnostics.host_path(location, violation, path, self.rules.policy)
    }

    fn only(&mut self, location: Location<'_>, entry: &Value, known: &[&str]) {
        self.only_of(location, "volumes", entry, known);
    }

    fn only_of(&mut self, location: Location<'_>, rule: &str, entry: &Value, known: &[&str]) {
        for (key, _) in entries(Some(entry)).filter(|(key, _)| !known.contains(key)) {
            self.refuse(location, Violation::within(rule, key, ""), "is not allowed here");
        }
    }
}

/// Never made on the host, and apart from its mounts.
fn bind_of(mount: &Mount) -> Value {
    json!({
        "type": "bind",
        "source": mount.host.real().display().to_string(),
        "target": mount.at.as_str(),
        "read_only": mount.access == Access::ReadOnly,
        "bind": { "create_host_path": false, "propagation": "rprivate" },
    })
}

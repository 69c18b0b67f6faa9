//! The mounts of services: binds, named volumes, tmpfs, files of configs and secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use coracle_host::fs::HostPath;
use coracle_runtime::stack_model::{self, BindOptions, FileMount, MountKind, Service};
use coracle_runtime::{Access, Mount, hold_in_place, leads_to_protected, mounts_over};
use coracle_types::ContainerPath;
use serde_json::{Map, Value};

use super::Admission;
use super::keys::Keys;
use super::resources::as_config;
use crate::diagnostics::{Location, Violation};

/// Paths at or below which nothing may be mounted. `/etc` is allowed: a service has no guest that writes there.
const NOT_BELOW: &[&str] = &["/proc", "/sys", "/dev", "/.coracle"];

/// The mounts of one service so far.
#[derive(Debug, Default)]
struct Seen {
    targets: BTreeSet<ContainerPath>,
    binds: Vec<Mount>,
}

impl Admission<'_> {
    pub(super) fn mounts(&mut self, name: &str, keys: &mut Keys<'_>, service: &mut Service) {
        let mut seen = Seen::default();
        for mut entry in self.items::<Map<String, Value>>(keys, "volumes") {
            entry.remove("consistency");
            let Some(mut mount) = self.parse::<stack_model::Mount>(keys, "volumes", Value::Object(entry)) else {
                continue;
            };
            let Some(at) = self.target(keys.location, "volumes", &mount.target, &mut seen) else { continue };
            at.as_str().clone_into(&mut mount.target);
            let others = match mount.kind {
                MountKind::Bind => mount.volume.is_some() || mount.tmpfs.is_some(),
                MountKind::Volume => mount.bind.is_some() || mount.tmpfs.is_some(),
                MountKind::Tmpfs => mount.bind.is_some() || mount.volume.is_some() || mount.source.is_some(),
            };
            if others {
                let violation = Violation::new("volumes", &mount.target);
                self.refuse(keys.location, violation, "has options of another type of mount");
            }
            service.volumes.extend(match mount.kind {
                MountKind::Bind => self.bind(keys.location, &mount, at, &mut seen.binds),
                MountKind::Volume => Some(self.named_volume(keys.location, mount)),
                MountKind::Tmpfs => {
                    let ceiling = self.rules.policy.memory_max;
                    if let Some(size) = mount.tmpfs.as_mut().and_then(|tmpfs| tmpfs.size.as_mut()) {
                        *size = ceiling.min(*size);
                    }
                    Some(mount)
                }
            });
        }
        service.tmpfs = self.tmpfs(keys, &mut seen);
        self.stored_files(keys, &mut seen, service);
        self.as_a_user(keys.location, &seen.binds, service);
        service.volumes.extend(self.covered(keys.location, &mut seen));
        self.binds.extend(seen.binds.into_iter().map(|bind| (name.to_owned(), bind)));
    }

    /// Parses a path in the container that no other mount of the service uses.
    fn target(&mut self, location: Location<'_>, key: &str, text: &str, seen: &mut Seen) -> Option<ContainerPath> {
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
        if !seen.targets.insert(at.clone()) {
            self.refuse(location, violation, "has a target twice");
            return None;
        }
        Some(at)
    }

    fn bind(
        &mut self,
        location: Location<'_>,
        mount: &stack_model::Mount,
        at: ContainerPath,
        binds: &mut Vec<Mount>,
    ) -> Option<stack_model::Mount> {
        let propagation = mount.bind.as_ref().and_then(|bind| bind.propagation.as_deref());
        if let Some(refused) = propagation.filter(|it| !["rprivate", "private"].contains(it)) {
            let violation = Violation::within("volumes", "bind.propagation", refused);
            self.refuse(location, violation, "is not allowed on a bind");
        }
        let violation = Violation::new("volumes", mount.source.as_deref().unwrap_or_default());
        if !self.rules.policy.binds {
            let why = "binds a directory of the host, which is not granted: use a named volume";
            self.refuse(location, violation.unless("workspace.mode"), why);
            return None;
        }
        let host = self.host_file(location, violation)?;
        if !mount.read_only && leads_to_protected(host.real(), &self.protected()) {
            let why = "is, or leads to, a protected path: add `:ro`, or bind the directory above it";
            self.refuse(location, violation.unless("workspace.protected"), why);
            return None;
        }
        let access = if mount.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let bind = Mount { host, at, access };
        let written = bind_of(&bind);
        binds.push(bind);
        Some(written)
    }

    fn named_volume(&mut self, location: Location<'_>, mount: stack_model::Mount) -> stack_model::Mount {
        if let Some(source) = mount.source.as_deref().filter(|it| !self.file.volumes.contains_key(*it)) {
            self.refuse(location, Violation::new("volumes", source), "names a volume that the file does not have");
        }
        mount
    }

    /// Reads the short form: a path, and options after a colon.
    fn tmpfs(&mut self, keys: &mut Keys<'_>, seen: &mut Seen) -> Vec<String> {
        let mut mounts = Vec::new();
        for one in self.items::<String>(keys, "tmpfs") {
            let (path, options) = one.split_once(':').unwrap_or((&one, ""));
            let Some(at) = self.target(keys.location, "tmpfs", path, seen) else { continue };
            let plain = |it: &&str| {
                let value = |key: &str| it.strip_prefix(key).is_some_and(|it| it.chars().all(char::is_alphanumeric));
                ["rw", "ro", "exec", "noexec", "nosuid", "nodev"].contains(it)
                    || ["size=", "mode=", "uid=", "gid="].iter().any(|key| value(key))
            };
            for option in options.split(',').filter(|it| !it.is_empty() && !plain(it)) {
                self.refuse(keys.location, Violation::new("tmpfs", option), "has an option that is not allowed");
            }
            mounts.push(if options.is_empty() { at.to_string() } else { format!("{at}:{options}") });
        }
        mounts
    }

    /// Reads `configs` and `secrets` of a service, which refer to parts of the file.
    fn stored_files(&mut self, keys: &mut Keys<'_>, seen: &mut Seen, service: &mut Service) {
        for (key, base) in [("configs", "/"), ("secrets", "/run/secrets/")] {
            for mut file in self.items::<FileMount>(keys, key) {
                let section = if key == "configs" { &self.file.configs } else { &self.file.secrets };
                let Some(part) = section.get(&file.source) else {
                    let violation = Violation::new(key, &file.source);
                    self.refuse(keys.location, violation, "names one that the file does not have");
                    continue;
                };
                let path = part.get("file").and_then(Value::as_str).filter(|it| !it.is_empty()).map(PathBuf::from);
                let target = if file.target.is_empty() { &file.source } else { &file.target };
                let target = if target.starts_with('/') { target.clone() } else { format!("{base}{target}") };
                let Some(at) = self.target(keys.location, key, &target, seen) else { continue };
                at.as_str().clone_into(&mut file.target);
                let is_file = path.is_some();
                // The part itself reports its errors.
                let opened = path.and_then(|path| HostPath::open(&path).ok());
                let may_be_read =
                    |host: &HostPath| self.rules.policy.host_path_problem("compose", host.real()).is_none();
                let bind = opened.filter(may_be_read).map(|host| Mount { host, at, access: Access::ReadOnly });
                seen.binds.extend(bind);
                match key {
                    "secrets" if is_file => service.secrets.push(file),
                    "secrets" => service.configs.push(FileMount { source: as_config(&file.source), ..file }),
                    _ => service.configs.push(file),
                }
            }
        }
    }

    /// If root inside is root outside, a set-uid file that root creates in a bind could give others root on the host.
    /// A service has no guest that prevents this, so it may not run as root with such a bind.
    ///
    /// A uid alone would get its groups from the image, possibly including root's, so it is written with a gid.
    fn as_a_user(&mut self, location: Location<'_>, binds: &[Mount], service: &mut Service) {
        let user = service.user.clone().unwrap_or_default();
        let ids: Option<Vec<u32>> = user.split(':').map(|part| part.parse().ok().filter(|id| *id > 0)).collect();
        let writable = binds.iter().find(|it| it.access == Access::ReadWrite).filter(|_| self.rules.root_is_host);
        match (ids.as_deref(), writable) {
            (Some([uid]), Some(_)) => service.user = Some(format!("{uid}:{uid}")),
            (Some([_] | [_, _]), _) => {}
            (_, Some(bind)) => {
                let source = bind.host.real().display().to_string();
                let why = "binds a directory of the host writable, and the service could be root there: add `:ro`, use a \
                           named volume, or give the service a numeric `user:` that is not 0";
                self.refuse(location, Violation::within("volumes", "volumes", &source), why);
            }
            (_, None) if !self.rules.policy.allow_root => {
                let violation = Violation::new("user", &user).unless("security.allow_root");
                self.refuse(location, violation, "could be root, which is not granted: give a number that is not 0");
            }
            (_, None) => {}
        }
    }

    /// Mounts protected paths over writable binds. `.git` is protected as a whole: a missing file in it could be
    /// created, and a service does not need it.
    fn covered(&mut self, location: Location<'_>, seen: &mut Seen) -> Vec<stack_model::Mount> {
        let Seen { targets, binds } = seen;
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
            over.extend(mounts_over(bind, &*targets, &protected));
        }
        let written = over.iter().map(bind_of).collect();
        binds.extend(over);
        written
    }

    /// Mounts directories that services bind over themselves where another service could replace them: a service has no
    /// guest that waits until its mounts were compared, and one may start while another runs.
    pub(super) fn hold_in_place(&mut self, services: &mut BTreeMap<String, Service>) {
        let bound: Vec<PathBuf> = self.binds.iter().map(|(_, bind)| bind.host.real().to_owned()).collect();
        let directories = || bound.iter().chain(self.rules.bound_by_others).map(PathBuf::as_path);
        let mut held = Vec::new();
        for (name, service) in services {
            let targets = service.volumes.iter().filter_map(|mount| ContainerPath::parse(&mount.target).ok());
            let targets: Vec<_> = targets.collect();
            let mut over = Vec::new();
            for (_, bind) in self.binds.iter().filter(|(of, _)| of == name) {
                hold_in_place(bind, &targets, directories(), &mut over);
            }
            service.volumes.extend(over.iter().map(bind_of));
            // Parents come first, since an engine may mount in this order.
            service.volumes.sort_by_key(|mount| mount.target.matches('/').count());
            held.extend(over.into_iter().map(|mount| (name.clone(), mount)));
        }
        self.binds.extend(held);
    }

    fn protected(&self) -> Vec<String> {
        let whole = |it: &String| if it.starts_with(".git/") { ".git".to_owned() } else { it.clone() };
        self.rules.protected.iter().map(whole).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Opens an absolute path of the host in the model.
    pub(super) fn host_file(&mut self, location: Location<'_>, violation: Violation<'_>) -> Option<HostPath> {
        let path = Path::new(violation.value);
        if !path.is_absolute() {
            self.refuse(location, violation, "is not an absolute path of this host");
            return None;
        }
        self.diagnostics.host_path(location, violation, path, self.rules.policy)
    }
}

/// The source is never created on the host, and the bind is private.
fn bind_of(mount: &Mount) -> stack_model::Mount {
    stack_model::Mount {
        kind: MountKind::Bind,
        source: Some(mount.host.real().display().to_string()),
        target: mount.at.to_string(),
        read_only: mount.access == Access::ReadOnly,
        bind: Some(BindOptions { create_host_path: Some(false), propagation: Some("rprivate".to_owned()) }),
        ..stack_model::Mount::default()
    }
}

//! Builds `config.json` of a bundle: translates the steps of the engine's own process to the OCI runtime specification.

use std::os::fd::OwnedFd;
use std::path::Path;

use coracle_types::Ids;
use rustix::mount::MountAttrFlags;
use rustix::process::Resource;
use serde_json::{Map, Value, json};

use crate::config::{ContainerConfig, NetworkMode};
use crate::ids::{IdMap, IdRange};
use crate::isolation::capabilities;
use crate::isolation::seccomp::oci_profile;
use crate::oci_runtime::OciRuntime;
use crate::sys::{BindSource, Step};

/// The version of the specification.
const VERSION: &str = "1.0.2";

/// The parts of a bundle that steps are translated to.
#[derive(Debug, Default)]
pub(crate) struct BundleParts {
    mounts: Vec<Value>,
    masked: Vec<String>,
    read_only: Vec<String>,
    settings: Map<String, Value>,
    limits: Vec<Value>,
    /// Mounts to be attached below the directory of sources, each named by its index. The flag is whether it is a directory.
    pub(crate) trees: Vec<(OwnedFd, bool)>,
}

impl BundleParts {
    /// Translates the steps for mounts, masks, settings and limits; the runtime does all other steps itself. Prepared
    /// mounts will be attached below `sources`. `highest` is the highest limit of a resource that this process may set:
    /// runtimes fail if a limit is higher.
    pub(crate) fn new(steps: Vec<Step>, sources: &Path, highest: impl Fn(Resource) -> Option<u64>) -> Self {
        let mut parts = Self::default();
        for step in steps {
            parts.add(step, sources, &highest);
        }
        parts
    }

    fn add(&mut self, step: Step, sources: &Path, highest: &impl Fn(Resource) -> Option<u64>) {
        let text = |it: &std::ffi::CStr| it.to_string_lossy().into_owned();
        match step {
            Step::FileSystem { kind, options, attributes, target, .. } => {
                let given = options.iter().map(|(key, value)| format!("{}={}", text(key), text(value)));
                // In the specification this is an option without a value. Kernels since 4.7 always create a new instance.
                let instance = (kind.as_c_str() == c"devpts").then(|| "newinstance".to_owned());
                let options: Vec<_> = words(attributes).into_iter().chain(instance).chain(given).collect();
                let mount = json!({ "destination": text(&target), "type": text(&kind), "source": text(&kind), "options": options });
                self.mounts.push(mount);
            }
            Step::Bind { source, attributes, target, directory } => {
                let source = match source {
                    BindSource::Path { path, .. } => text(&path),
                    BindSource::Prepared(tree) => {
                        self.trees.push((tree, directory));
                        sources.join((self.trees.len() - 1).to_string()).to_string_lossy().into_owned()
                    }
                };
                let access =
                    if attributes.contains(MountAttrFlags::MOUNT_ATTR_RDONLY) { None } else { Some("rw".into()) };
                let options: Vec<String> =
                    ["rbind".into()].into_iter().chain(access).chain(words(attributes)).collect();
                self.mounts.push(
                    json!({ "destination": text(&target), "type": "bind", "source": source, "options": options }),
                );
            }
            Step::Mask(path) => self.masked.push(text(&path)),
            Step::ReadOnly(path) => self.read_only.push(text(&path)),
            Step::Setting { path, value } => {
                let name = text(&path).trim_start_matches("proc/sys/").replace('/', ".");
                self.settings.insert(name, text(&value).into());
            }
            Step::Limit { resource, soft, hard } => self.limits.extend(limit(resource, soft, hard, highest)),
            _ => {}
        }
    }
}

fn words(attributes: MountAttrFlags) -> Vec<String> {
    [
        (MountAttrFlags::MOUNT_ATTR_RDONLY, "ro"),
        (MountAttrFlags::MOUNT_ATTR_NOSUID, "nosuid"),
        (MountAttrFlags::MOUNT_ATTR_NODEV, "nodev"),
        (MountAttrFlags::MOUNT_ATTR_NOEXEC, "noexec"),
        (MountAttrFlags::MOUNT_ATTR_STRICTATIME, "strictatime"),
    ]
    .into_iter()
    .filter(|it| attributes.contains(it.0))
    .map(|it| it.1.to_owned())
    .collect()
}

fn limit(resource: Resource, soft: u64, hard: u64, highest: &impl Fn(Resource) -> Option<u64>) -> Option<Value> {
    let name = match resource {
        Resource::As => "RLIMIT_AS",
        Resource::Core => "RLIMIT_CORE",
        Resource::Cpu => "RLIMIT_CPU",
        Resource::Data => "RLIMIT_DATA",
        Resource::Fsize => "RLIMIT_FSIZE",
        Resource::Memlock => "RLIMIT_MEMLOCK",
        Resource::Nofile => "RLIMIT_NOFILE",
        Resource::Nproc => "RLIMIT_NPROC",
        Resource::Rss => "RLIMIT_RSS",
        Resource::Stack => "RLIMIT_STACK",
        _ => return None,
    };
    let most = highest(resource).unwrap_or(u64::MAX);
    Some(json!({ "type": name, "soft": soft.min(most), "hard": hard.min(most) }))
}

/// A process to run in a container.
#[derive(Clone, Debug)]
pub(crate) struct ProcessRequest<'a> {
    pub(crate) words: &'a [String],
    /// `NAME=value`.
    pub(crate) env: &'a [String],
    pub(crate) workdir: &'a str,
    pub(crate) user: Ids,
    pub(crate) capabilities: u64,
}

/// The input of [`bundle`].
#[derive(Debug)]
pub(crate) struct BundleRequest<'a> {
    pub(crate) runtime: OciRuntime,
    pub(crate) config: &'a ContainerConfig,
    pub(crate) process: ProcessRequest<'a>,
    /// The mounted root file system.
    pub(crate) root: &'a Path,
    /// The mapping of its user namespace, if it has its own.
    pub(crate) ids: Option<&'a IdMap>,
    /// Its control group, relative to the mount point of each hierarchy.
    pub(crate) control_group: &'a str,
}

/// Builds `config.json`.
pub(crate) fn bundle(request: &BundleRequest<'_>, parts: &BundleParts) -> Value {
    let BundleRequest { runtime, config, root, ids, control_group, .. } = request;
    let network = (config.network.mode != NetworkMode::Host).then_some("network");
    let kinds = ["pid", "ipc", "uts", "mount", "cgroup"].into_iter().chain(network).chain(ids.map(|_| "user"));
    let mut linux = json!({
        "namespaces": kinds.map(|it| json!({ "type": it })).collect::<Vec<_>>(),
        "cgroupsPath": control_group,
        // Denies all devices; the runtime adds the default ones.
        "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
        "maskedPaths": parts.masked,
        "readonlyPaths": parts.read_only,
        "sysctl": parts.settings,
    });
    if let Some(map) = ids {
        linux["uidMappings"] = mapping(&map.uids);
        linux["gidMappings"] = mapping(&map.gids);
    }
    // gVisor's own kernel filters, and it installs its own filter on the host.
    if !runtime.has_own_kernel() {
        linux["seccomp"] = oci_profile();
    }
    json!({
        "ociVersion": VERSION,
        "process": process(&request.process, parts),
        "root": { "path": root, "readonly": config.read_only },
        "hostname": config.hostname,
        "mounts": parts.mounts,
        "linux": linux,
    })
}

/// Describes a process, in a bundle or for `exec`.
pub(crate) fn process(request: &ProcessRequest<'_>, parts: &BundleParts) -> Value {
    let ProcessRequest { words, env, workdir, user, capabilities } = request;
    let names = capabilities::names_of(*capabilities);
    json!({
        "terminal": false,
        "user": { "uid": user.uid, "gid": user.gid, "umask": 0o022 },
        "args": words,
        "env": env,
        "cwd": workdir,
        // The inheritable and ambient sets are empty, as in the engine's own containers.
        "capabilities": { "bounding": names, "permitted": names, "effective": names },
        "rlimits": parts.limits,
        "noNewPrivileges": true,
    })
}

fn mapping(ranges: &[IdRange]) -> Value {
    let range = |it: &IdRange| json!({ "containerID": it.inside, "hostID": it.host, "size": it.count });
    ranges.iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::config::example;

    fn parts() -> BundleParts {
        let file = std::fs::File::open("/dev/null").unwrap();
        let harmless = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let bind = |tree: OwnedFd, attributes, target: &std::ffi::CStr| Step::Bind {
            source: BindSource::Prepared(tree),
            attributes,
            target: target.to_owned(),
            directory: true,
        };
        let tree = || file.as_fd().try_clone_to_owned().unwrap();
        let steps = vec![
            Step::FileSystem {
                kind: c"tmpfs".into(),
                options: vec![(c"size".into(), c"16m".into())],
                attributes: harmless | MountAttrFlags::MOUNT_ATTR_NOEXEC,
                target: c"/run".into(),
                optional: false,
            },
            bind(tree(), harmless, c"/writable"),
            Step::NewSession,
            bind(tree(), harmless | MountAttrFlags::MOUNT_ATTR_RDONLY, c"/read-only"),
            Step::Mask(c"/proc/kcore".into()),
            Step::ReadOnly(c"/proc/sys".into()),
            Step::Setting { path: c"proc/sys/net/ipv4/ping_group_range".into(), value: c"0 9".into() },
            Step::Limit { resource: Resource::Nofile, soft: 1024, hard: 524_288 },
        ];
        BundleParts::new(steps, Path::new("/sources"), |_| Some(20_000))
    }

    fn bundle_of(runtime: OciRuntime, mode: NetworkMode, ids: Option<&IdMap>) -> Value {
        let mut config = example(Vec::new());
        config.network.mode = mode;
        let words = ["/.coracle/guest".to_owned(), "init".to_owned()];
        let process = ProcessRequest {
            words: &words,
            env: &config.env,
            workdir: "/",
            user: Ids::ROOT,
            capabilities: 0b1111_1011,
        };
        let (root, control_group) = (Path::new("/root"), "/coracle/id");
        let request = BundleRequest { runtime, config: &config, process, root, ids, control_group };
        bundle(&request, &parts())
    }

    #[test]
    fn mounts_masks_and_limits_match_the_engines_own_process() {
        let made = bundle_of(OciRuntime::Crun, NetworkMode::None, None);
        let mounts = made["mounts"].as_array().unwrap();
        assert_eq!(mounts[0]["options"], json!(["nosuid", "nodev", "noexec", "size=16m"]));
        assert_eq!((&mounts[1]["source"], &mounts[2]["source"]), (&json!("/sources/0"), &json!("/sources/1")));
        assert_eq!(mounts[1]["options"], json!(["rbind", "rw", "nosuid", "nodev"]));
        assert_eq!(mounts[2]["options"], json!(["rbind", "ro", "nosuid", "nodev"]));
        assert_eq!(made["linux"]["maskedPaths"], json!(["/proc/kcore"]));
        assert_eq!(made["linux"]["readonlyPaths"], json!(["/proc/sys"]));
        assert_eq!(made["linux"]["sysctl"], json!({ "net.ipv4.ping_group_range": "0 9" }));
        assert_eq!(made["process"]["rlimits"], json!([{ "type": "RLIMIT_NOFILE", "soft": 1024, "hard": 20_000 }]));
    }

    #[test]
    fn no_process_gains_privileges_and_only_these_capabilities_remain() {
        let made = bundle_of(OciRuntime::Runc, NetworkMode::None, None);
        let process = &made["process"];
        assert_eq!(process["noNewPrivileges"], true);
        let sets = process["capabilities"].as_object().unwrap();
        assert_eq!(sets.keys().collect::<Vec<_>>(), ["bounding", "effective", "permitted"]);
        assert_eq!(sets["bounding"].as_array().unwrap().len(), 7);
        assert!(sets.values().all(|it| *it == sets["bounding"]));
    }

    #[test]
    fn namespaces_and_seccomp_depend_on_runtime_and_network() {
        let kinds = |it: &Value| -> Vec<String> {
            let all = it["linux"]["namespaces"].as_array().unwrap();
            all.iter().map(|it| it["type"].as_str().unwrap().to_owned()).collect()
        };
        let map = IdMap::of_range_for(&example(Vec::new()).id);
        let mapped = bundle_of(OciRuntime::Crun, NetworkMode::None, Some(&map));
        assert_eq!(kinds(&mapped), ["pid", "ipc", "uts", "mount", "cgroup", "network", "user"]);
        assert_eq!(mapped["linux"]["uidMappings"][0]["containerID"], 0);
        let host = bundle_of(OciRuntime::Runsc, NetworkMode::Host, None);
        assert_eq!(kinds(&host), ["pid", "ipc", "uts", "mount", "cgroup"]);
        assert!(mapped["linux"]["seccomp"].is_object() && host["linux"]["seccomp"].is_null());
        assert!(host["linux"]["uidMappings"].is_null());
    }
}

//! Checks requests against a policy.

use coracle_types::{ContainerPath, EngineKind, ImageRef};

use super::{Admitted, Policy, PolicyRefusal, Problem, problem};
use crate::{Capabilities, CreateSpec, Mount, NetworkRequest};

/// Decides whether a container may be created. Pure: depends on its arguments only.
///
/// # Errors
/// [`PolicyRefusal`] with every broken rule.
pub fn admit(spec: CreateSpec, policy: &Policy) -> Result<Admitted, PolicyRefusal> {
    let mut problems = Vec::new();
    image_problem(&spec.image, policy).into_iter().for_each(|it| problems.push(it));
    for mount in &spec.mounts {
        if !policy.binds {
            let value = mount.host.real().display().to_string();
            problems.push(problem(
                "mount.bind",
                Some("workspace.mode"),
                value,
                "host directories are copied, not bound",
            ));
        }
        problems.extend(policy.host_path_problem("mount", mount.host.real()));
    }
    problems.extend(place_problems(&spec));
    problems.extend(port_problems(&spec, policy));
    problems.extend(limit_problems(&spec, policy));
    problems.extend(network_problems(&spec, policy));
    if policy.strict {
        problems.extend(shape_problems(&spec));
    }
    if spec.gpu && !policy.allow_gpu {
        problems.push(problem("gpu", Some("security.allow_gpu"), "true".into(), "GPUs are not granted"));
    }
    if spec.exec_user.is_root() && !policy.allow_root {
        let value = spec.exec_user.to_string();
        problems.push(problem("root.exec", Some("security.allow_root"), value, "commands as root are not granted"));
    }
    if problems.is_empty() {
        Ok(Admitted { spec, ports_bind: policy.ports_bind, guest: None, worker: None })
    } else {
        Err(PolicyRefusal { problems })
    }
}

fn image_problem(image: &ImageRef, policy: &Policy) -> Option<Problem> {
    let allowed = policy.images.matches(image.as_str()) || policy.images.matches(image.completed().as_str());
    let message = format!("image `{image}` is not on the list");
    (!allowed).then(|| problem("image", Some("security.images"), image.to_string(), &message))
}

/// Directories of the guest and the kernel, which no volume or tmpfs may cover.
const COVERED: [&str; 4] = ["/.coracle", "/proc", "/sys", "/dev"];

fn place_problems(spec: &CreateSpec) -> Vec<Problem> {
    let places = spec.volumes.iter().map(|it| &it.at).chain(spec.tmpfs.iter().map(|it| &it.at));
    // A comma or colon would end it in the words of an engine.
    let odd = |at: &&ContainerPath| {
        at.as_str() == "/" || at.as_str().contains([',', ':']) || COVERED.iter().any(|it| at.is_beneath(it))
    };
    let refuse = |at: &ContainerPath| {
        problem("mount.target", None, at.to_string(), &format!("nothing can be mounted at `{at}`"))
    };
    places.filter(odd).map(refuse).collect()
}

/// Refuses host directories that an engine cannot mount.
///
/// # Errors
/// [`PolicyRefusal`] with each of them.
pub fn check_mounts(engine: EngineKind, mounts: &[Mount]) -> Result<(), PolicyRefusal> {
    if engine != EngineKind::Podman {
        return Ok(());
    }
    // A colon ends a path in Podman's option `--volume`, and nothing escapes one.
    let refuse = |rule, setting, path: String| {
        let message = format!("Podman cannot mount `{path}`: rename it to a name without `:`, or copy the files in");
        path.contains(':').then(|| problem(rule, setting, path, &message))
    };
    let of_mount = |it: &Mount| {
        let real = it.host.real().display().to_string();
        let source = refuse("mount.bind", Some("workspace.mode"), real);
        [source, refuse("mount.target", None, it.at.to_string())]
    };
    let problems: Vec<_> = mounts.iter().flat_map(of_mount).flatten().collect();
    if problems.is_empty() { Ok(()) } else { Err(PolicyRefusal { problems }) }
}

fn port_problems(spec: &CreateSpec, policy: &Policy) -> Vec<Problem> {
    let low = spec.ports.iter().filter_map(|port| port.host).filter(|port| *port < policy.port_min);
    let refuse = |port: u16| {
        let message = format!("host port {port} is below {}", policy.port_min);
        problem("port.low", Some("security.port_min"), port.to_string(), &message)
    };
    low.map(refuse).collect()
}

fn limit_problems(spec: &CreateSpec, policy: &Policy) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(memory) = spec.limits.memory.filter(|it| *it > policy.memory_max) {
        let message = format!("memory_limit {memory} is above {}", policy.memory_max);
        problems.push(problem("limit.memory", Some("security.memory_max"), memory.to_string(), &message));
    }
    if let Some((cpus, max)) = spec.limits.cpus.zip(policy.cpus_max).filter(|(cpus, max)| cpus > max) {
        let message = format!("cpu_limit {cpus} is above {max}");
        problems.push(problem("limit.cpus", Some("security.cpus_max"), cpus.to_string(), &message));
    }
    if let Some(pids) = spec.limits.pids.filter(|it| *it > policy.pids_max) {
        let message = format!("pids_limit {pids} is above {}", policy.pids_max);
        problems.push(problem("limit.pids", Some("security.pids_max"), pids.to_string(), &message));
    }
    problems
}

fn network_problems(spec: &CreateSpec, policy: &Policy) -> Vec<Problem> {
    let mut problems = Vec::new();
    match &spec.network {
        NetworkRequest::Host if !policy.allow_host_network => problems.push(problem(
            "network.host",
            Some("security.allow_host_network"),
            "host".into(),
            "the host's network is not shared",
        )),
        NetworkRequest::Bridge | NetworkRequest::Named(_) if !policy.open_network => problems.push(problem(
            "network.open",
            Some("security.network"),
            "bridge".into(),
            "a network with a way out is not granted",
        )),
        _ => {}
    }
    let to_host = spec.add_hosts.iter().find(|it| it.address.is_none()).filter(|_| !policy.allow_host_gateway);
    problems.extend(to_host.map(|entry| {
        let message = "names for the host are not granted";
        problem("network.gateway", Some("security.allow_host_gateway"), entry.name.clone(), message)
    }));
    problems
}

/// Properties that contradict `strict`, whatever single settings grant.
fn shape_problems(spec: &CreateSpec) -> Vec<Problem> {
    let refused = [
        (spec.capabilities != Capabilities::None || spec.exec_user.is_root(), "root.init", "PID 1 would be root"),
        (!spec.read_only, "root.files", "the image's files could be written"),
        (spec.network != NetworkRequest::None, "network.open", "it would have a network"),
        (!spec.ports.is_empty(), "port.open", "it would have ports, and there is no network"),
        (spec.gpu, "gpu", "it would have a device of the host"),
    ];
    let broken = refused.into_iter().filter(|it| it.0);
    broken
        .map(|(_, rule, why)| {
            problem(rule, Some("policy"), "strict".into(), &format!("{why}: `strict` has none of it"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::policy;
    use crate::{Access, HostEntry, Limits, Mount, Port, Protocol, Tmpfs, VolumeMount};
    use coracle_host::fs::HostPath;
    use coracle_types::{ByteSize, ContainerName, Ids, VolumeName};

    fn spec() -> CreateSpec {
        let (name, image) = (ContainerName::parse("web").unwrap(), ImageRef::parse("ubuntu").unwrap());
        CreateSpec { exec_user: Ids { uid: 7, gid: 7 }, ..CreateSpec::new(name, image) }
    }

    fn rules(spec: CreateSpec) -> Vec<&'static str> {
        admit(spec, &policy()).err().map_or_else(Vec::new, |it| it.problems.iter().map(|it| it.rule).collect())
    }

    #[test]
    fn a_modest_request_is_admitted() {
        assert_eq!(rules(spec()), [""; 0]);
    }

    #[test]
    fn strict_admits_only_its_own_form_of_container() {
        let policy = Policy { strict: true, allow_root: true, allow_gpu: true, ..policy() };
        let rules = |spec: CreateSpec| -> Vec<&'static str> {
            admit(spec, &policy).err().map_or_else(Vec::new, |it| it.problems.iter().map(|it| it.rule).collect())
        };
        let fits = || CreateSpec {
            capabilities: Capabilities::None,
            read_only: true,
            network: NetworkRequest::None,
            ..spec()
        };
        assert_eq!(rules(fits()), [""; 0]);
        assert_eq!(rules(spec()), ["root.init", "root.files", "network.open"]);
        assert_eq!(rules(CreateSpec { exec_user: Ids::ROOT, ..fits() }), ["root.init"]);
        assert_eq!(rules(CreateSpec { capabilities: Capabilities::Guest, ..fits() }), ["root.init"]);
        let ports = vec![Port { container: 80, host: None, protocol: Protocol::Tcp }];
        assert_eq!(rules(CreateSpec { ports, gpu: true, ..fits() }), ["port.open", "gpu"]);
    }

    #[test]
    fn nothing_covers_what_the_guest_and_the_kernel_have() {
        let at = |path: &str| {
            let at = ContainerPath::parse(path).unwrap();
            let tmpfs = vec![Tmpfs { at: at.clone(), size: ByteSize::mib(1), mode: 0o755 }];
            let volumes = vec![VolumeMount { name: VolumeName::parse("v").unwrap(), at, access: Access::ReadWrite }];
            [rules(CreateSpec { tmpfs, ..spec() }), rules(CreateSpec { volumes, ..spec() })]
        };
        for fine in ["/tmp", "/home/agent", "/.coraclette", "/process"] {
            assert_eq!(at(fine), [[""; 0]; 2], "{fine}");
        }
        for odd in ["/", "/.coracle", "/.coracle/run", "/proc/1", "/sys", "/dev/shm", "/a,b", "/a:b"] {
            assert_eq!(at(odd), [["mount.target"]; 2], "{odd}");
        }
    }

    #[test]
    fn podman_mounts_no_path_with_a_colon() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a:b");
        std::fs::create_dir(&odd).unwrap();
        let rules = |engine, host: &std::path::Path, at: &str| {
            let (host, at) = (HostPath::open(host).unwrap(), ContainerPath::parse(at).unwrap());
            let checked = check_mounts(engine, &[Mount { host, at, access: Access::ReadWrite }]);
            checked.err().map_or_else(Vec::new, |it| it.problems.iter().map(|it| it.rule).collect::<Vec<_>>())
        };
        assert_eq!(rules(EngineKind::Podman, &odd, "/w:x"), ["mount.bind", "mount.target"]);
        assert_eq!(rules(EngineKind::Podman, dir.path(), "/w"), [""; 0]);
        assert_eq!(rules(EngineKind::Docker, &odd, "/w:x"), [""; 0]);
    }

    #[test]
    fn every_broken_rule_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let host = HostPath::open(dir.path()).unwrap();
        let requested = CreateSpec {
            image: ImageRef::parse("other/x").unwrap(),
            exec_user: Ids::ROOT,
            mounts: vec![Mount { host, at: ContainerPath::parse("/w").unwrap(), access: Access::ReadOnly }],
            ports: vec![Port { container: 80, host: Some(80), protocol: Protocol::Tcp }],
            network: NetworkRequest::Host,
            limits: Limits { memory: Some(ByteSize::mib(1025)), cpus: Some(2.5), pids: Some(101) },
            gpu: true,
            add_hosts: vec![HostEntry { name: "up".into(), address: None }],
            ..spec()
        };
        let all =
            "image mount.root port.low limit.memory limit.cpus limit.pids network.host network.gateway gpu root.exec";
        assert_eq!(rules(requested).join(" "), all);
    }
}

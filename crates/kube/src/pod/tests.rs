//! Snapshots of Pods for requests, and descriptions of Pods as containers.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_runtime::{
    Capabilities, CreateSpec, GuestDelivery, HostEntry, Limits, NetworkAttachment, Placed, Policy, Port, Protocol,
    Tmpfs, Ulimits, VolumeMount, admit,
};
use coracle_types::{
    ByteSize, Capability, ContainerName, ContainerPath, ContainerStatus, Error, Ids, ImageId, ImageRef, Result,
    VolumeName,
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{PodRequest, container_of, pod};
use crate::settings::{KubeSettings, KubeToleration};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const IMAGE: &str = "registry:5000/x@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn spec() -> CreateSpec {
    CreateSpec::new(ContainerName::parse("box").unwrap(), ImageRef::parse("x:1").unwrap())
}

fn placed(spec: CreateSpec, guest: bool, network: NetworkAttachment) -> Placed {
    let guest = guest.then_some(GuestDelivery::Uploaded);
    let image = ImageId::parse(format!("sha256:{}", "a".repeat(64))).unwrap();
    admit(spec, &Policy::everything()).unwrap().with_guest(guest).with_image(image, network)
}

fn made(placed: &Placed, settings: &KubeSettings) -> Result<Pod> {
    pod(PodRequest {
        placed,
        settings,
        namespace: "agents",
        id: ID,
        image: IMAGE,
        image_env: &["PATH=/bin".to_owned()],
    })
}

/// The spec of a Pod as JSON, without parts that all of them have.
fn shown(pod: &Pod) -> Value {
    serde_json::to_value(pod).unwrap()
}

#[test]
fn a_container_with_a_guest() {
    let spec = CreateSpec {
        limits: Limits { memory: Some(ByteSize::mib(1024)), cpus: Some(0.05), pids: Some(100) },
        labels: BTreeMap::from([
            ("coracle.managed".into(), "true".into()),
            ("coracle.created".into(), "2026-11-26T18:00:00Z".into()),
        ]),
        lifeline: Some(Duration::from_secs(60)),
        ..spec()
    };
    let pod = made(&placed(spec, true, NetworkAttachment::Alone), &KubeSettings::default()).unwrap();
    insta::assert_json_snapshot!(shown(&pod));
}

#[test]
fn a_pod_has_its_longest_lifetime_unless_it_is_persistent() {
    let settings = KubeSettings { max_lifetime: Some(Duration::from_secs(600)), ..KubeSettings::default() };
    let deadline = |spec: CreateSpec| {
        let pod = made(&placed(spec, true, NetworkAttachment::Alone), &settings).unwrap();
        pod.spec.unwrap().active_deadline_seconds
    };
    assert_eq!(deadline(spec()), Some(600));
    assert_eq!(deadline(CreateSpec { persistent: true, ..spec() }), None);
    let ended = |deadline: u64| {
        let mut pod = made(&placed(spec(), true, NetworkAttachment::Alone), &settings).unwrap();
        pod.spec.as_mut().unwrap().active_deadline_seconds = i64::try_from(deadline).ok();
        let status = json!({ "phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active too long" });
        pod.status = serde_json::from_value(status).unwrap();
        container_of(&pod).unwrap().not_running()
    };
    assert!(matches!(ended(600), Error::LifetimeOver { limit } if limit.as_secs() == 600));
    // As `stop` ends one.
    assert!(matches!(ended(super::STOP_DEADLINE), Error::NotRunning { status: ContainerStatus::Exited, .. }));
}

#[test]
fn a_container_of_one_user_with_all_options_of_a_pod() {
    let path = |it: &str| ContainerPath::parse(it).unwrap();
    let volume = VolumeMount {
        name: VolumeName::parse("My_cache").unwrap(),
        at: path("/cache"),
        access: coracle_runtime::Access::ReadOnly,
    };
    let spec = CreateSpec {
        exec_user: Ids { uid: 1000, gid: 1001 },
        capabilities: Capabilities::None,
        read_only: true,
        tmpfs: vec![Tmpfs { at: path("/tmp"), size: ByteSize::mib(64), mode: 0o1777 }],
        volumes: vec![volume],
        ulimits: Ulimits { nofile: Some(1024), core: Some(0) },
        add_hosts: vec![HostEntry { name: "db".into(), address: Some([10, 0, 0, 7].into()) }],
        ..spec()
    };
    let toleration = KubeToleration { key: "agents".into(), value: None, effect: Some("NoSchedule".into()) };
    let settings = KubeSettings {
        runtime_class: Some("gvisor".into()),
        image_pull_secret: Some("login".into()),
        guest_image: Some(ImageRef::parse("registry:5000/guest:1").unwrap()),
        node_selector: BTreeMap::from([("pool".into(), "agents".into())]),
        tolerations: vec![toleration],
        ..KubeSettings::default()
    };
    let pod = made(&placed(spec, true, NetworkAttachment::Id("team.net".into())), &settings).unwrap();
    insta::assert_json_snapshot!(shown(&pod));
}

#[test]
fn a_container_without_a_guest_only_waits() {
    let pod = made(&placed(spec(), false, NetworkAttachment::None), &KubeSettings::default()).unwrap();
    let shown = shown(&pod);
    assert_eq!(shown["spec"]["initContainers"], Value::Null);
    assert_eq!(shown["spec"]["volumes"], Value::Null);
    assert_eq!(shown["metadata"]["labels"]["coracle.dev/network"], "coracle-none");
}

#[test]
fn unsupported_options_are_refused_before_a_pod_is_created() {
    let port = Port { container: 80, host: None, protocol: Protocol::Tcp };
    let entry = HostEntry { name: "host".into(), address: None };
    for (spec, network, lacking) in [
        (CreateSpec { ports: vec![port], ..spec() }, NetworkAttachment::Alone, Capability::Publish),
        (CreateSpec { gpu: true, ..spec() }, NetworkAttachment::Alone, Capability::Gpu),
        (CreateSpec { image_health: true, ..spec() }, NetworkAttachment::Alone, Capability::HealthCheck),
        (CreateSpec { add_hosts: vec![entry], ..spec() }, NetworkAttachment::Alone, Capability::HostEntries),
        (spec(), NetworkAttachment::Host, Capability::HostNetwork),
    ] {
        let refused = made(&placed(spec, false, network), &KubeSettings::default());
        assert!(matches!(refused, Err(Error::Unsupported { capability, .. }) if capability == lacking), "{refused:?}");
    }
}

/// Secrets reach a container over its link. A request contains none, and no variable is added.
#[test]
fn no_environment_is_in_a_pod() {
    let pod = made(&placed(spec(), true, NetworkAttachment::Alone), &KubeSettings::default()).unwrap();
    let text = shown(&pod).to_string();
    for word in ["\"env\"", "envFrom", "secretKeyRef"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
    assert_eq!(shown(&pod)["spec"]["automountServiceAccountToken"], false);
}

fn with_status(status: Value, started: bool) -> Pod {
    let mut pod = made(&placed(spec(), true, NetworkAttachment::Alone), &KubeSettings::default()).unwrap();
    if started {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(crate::names::STARTED.into(), "2026-11-26T18:00:01Z".into());
    }
    pod.status = Some(serde_json::from_value(status).unwrap());
    pod
}

fn main_in(state: &Value) -> Value {
    json!({ "phase": "Running", "containerStatuses": [
        { "name": "main", "image": "x", "imageID": "", "ready": true, "restartCount": 0, "state": state }
    ] })
}

#[test]
fn a_pod_is_described_as_a_container() {
    let running = main_in(&json!({ "running": {} }));
    let of = |status: &Value, started| container_of(&with_status(status.clone(), started)).unwrap();
    assert_eq!(of(&running, false).status, ContainerStatus::Created);
    let it = of(&running, true);
    assert_eq!((it.status, it.id.as_str(), it.name.as_str()), (ContainerStatus::Running, ID, "box"));
    assert_eq!((it.exit_code, it.user.as_str(), it.networks.len()), (None, "", 1));
    let killed = of(&main_in(&json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } })), true);
    assert_eq!((killed.status, killed.exit_code, killed.oom_killed), (ContainerStatus::Exited, Some(137), true));
    let evicted = of(&json!({ "phase": "Failed", "reason": "Evicted" }), true);
    assert_eq!((evicted.status, evicted.exit_code), (ContainerStatus::Exited, None));
    assert_eq!(of(&json!({ "phase": "Pending" }), false).status, ContainerStatus::Created);
}

#[test]
fn a_pod_that_cannot_start_fails_with_its_reason() {
    let waiting = |reason: &str| main_in(&json!({ "waiting": { "reason": reason, "message": "because" } }));
    let judged = |status: Value, waited| crate::start::check_running(&with_status(status, false), waited);
    let soon = Duration::ZERO;
    assert!(matches!(judged(waiting("ImagePullBackOff"), soon), Err(Error::PullFailed { .. })));
    assert!(matches!(judged(waiting("CreateContainerConfigError"), soon), Err(Error::Engine { .. })));
    assert!(matches!(judged(waiting("PodInitializing"), soon), Ok(None)));
    let unscheduled = json!({ "phase": "Pending", "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes" }
    ] });
    assert!(matches!(judged(unscheduled.clone(), soon), Ok(None)));
    assert!(matches!(judged(unscheduled, Duration::from_secs(600)), Err(Error::Unschedulable { .. })));
}

#[test]
fn a_node_that_stops_reporting_is_lost_and_one_that_ended_its_pod_is_not() {
    let with_ready = |state: Value, ready: &str| {
        let mut status = main_in(&state);
        status["conditions"] = json!([{ "type": "Ready", "status": ready }]);
        super::node_lost(&with_status(status, true))
    };
    assert!(matches!(with_ready(json!({ "running": {} }), "False"), Some(Error::NodeLost { .. })));
    assert!(matches!(with_ready(json!({ "running": {} }), "Unknown"), Some(Error::NodeLost { .. })));
    assert!(with_ready(json!({ "running": {} }), "True").is_none());
    assert!(with_ready(json!({ "terminated": { "exitCode": 0 } }), "False").is_none());
}

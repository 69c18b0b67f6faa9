//! Describes a Pod as a container.

use std::collections::BTreeMap;

use coracle_runtime::{Container, Limits, MountPoint};
use coracle_types::{ContainerId, ContainerStatus, Error, ImageId, Result};
use k8s_openapi::api::core::v1::{Container as KubeContainer, Pod};

use super::metadata::{ALONE, NO_NETWORK};
use super::state::{PodState, main_state, status};
use crate::names::{ID, IMAGE_ENV, IMAGE_ID, LABELS, LIMITS, MAIN, NAME, NETWORK_LABEL, STARTED};

/// Returns the container of a Pod.
///
/// # Errors
/// [`Error::Unreadable`] for a Pod without the annotations.
pub(crate) fn container_of(pod: &Pod) -> Result<Container> {
    let unreadable = |detail: String| Error::Unreadable { verb: "inspect", detail };
    let id = container_id(pod).ok_or_else(|| unreadable(format!("no annotation `{ID}`")))?;
    let image = annotation(pod, IMAGE_ID).unwrap_or_default();
    let image = ImageId::parse(image).map_err(|err| unreadable(err.to_string()))?;
    let (status, state) = (status(pod), main_state(pod));
    let ended = match state {
        PodState::Ended(it) if status == ContainerStatus::Exited => Some(it),
        _ => None,
    };
    let main = main(pod);
    let security = main.and_then(|it| it.security_context.as_ref());
    let user = security.and_then(|it| Some((it.run_as_user?, it.run_as_group?))).filter(|it| *it != (0, 0));
    Ok(Container {
        id,
        name: annotation(pod, NAME).unwrap_or_default().to_owned(),
        image,
        status,
        pid: None,
        exit_code: ended.as_ref().and_then(|it| it.exit_code),
        oom_killed: ended.as_ref().is_some_and(|it| it.oom_killed),
        lifetime_over: ended.and_then(|it| it.lifetime_over),
        created: pod.metadata.creation_timestamp.as_ref().map(|it| it.0.to_string()).unwrap_or_default(),
        started_at: annotation(pod, STARTED).map(str::to_owned),
        labels: labels_of(pod),
        user: user.map(|(uid, gid)| format!("{uid}:{gid}")).unwrap_or_default(),
        workdir: main.and_then(|it| it.working_dir.clone()).unwrap_or_default(),
        env: annotation(pod, IMAGE_ENV).and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default(),
        ports: Vec::new(),
        mounts: main.map(mounts).unwrap_or_default(),
        networks: network(pod).into_iter().collect(),
        limits: limits(pod),
        execs: 0,
        health: None,
        isolation: None,
    })
}

/// The id that its creation chose.
pub(crate) fn container_id(pod: &Pod) -> Option<ContainerId> {
    ContainerId::parse(annotation(pod, ID)?).ok()
}

/// Returns all labels, as they were given.
fn labels_of(pod: &Pod) -> BTreeMap<String, String> {
    annotation(pod, LABELS).and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn main(pod: &Pod) -> Option<&KubeContainer> {
    pod.spec.as_ref()?.containers.iter().find(|it| it.name == MAIN)
}

fn mounts(main: &KubeContainer) -> Vec<MountPoint> {
    let mounts = main.volume_mounts.iter().flatten();
    let point = |it: &k8s_openapi::api::core::v1::VolumeMount| MountPoint {
        source: it.name.clone().into(),
        target: it.mount_path.clone(),
        writable: it.read_only != Some(true),
        is_bind: false,
    };
    mounts.filter(|it| it.name.starts_with("volume-")).map(point).collect()
}

fn network(pod: &Pod) -> Option<String> {
    let label = pod.metadata.labels.as_ref()?.get(NETWORK_LABEL)?;
    match label.as_str() {
        NO_NETWORK => None,
        ALONE => Some("default".to_owned()),
        named => Some(named.to_owned()),
    }
}

/// Returns the limits that the node enforces. There is none of processes.
fn limits(pod: &Pod) -> Limits {
    let requested: Limits = annotation(pod, LIMITS).and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
    Limits { pids: None, ..requested }
}

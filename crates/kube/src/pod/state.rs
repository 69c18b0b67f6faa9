//! The state of a Pod, as far as it affects its container.

use std::time::Duration;

use coracle_types::{ContainerStatus, Error};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus as StatusOf, Pod};

use crate::names::{GUEST, MAIN, STARTED};

/// Waiting reasons with which a kubelet retries what will not succeed by itself.
const PERMANENT_FAILURES: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// The deadline in seconds by which `stop` ends a Pod. Every lifetime is longer.
pub(crate) const STOP_DEADLINE: u64 = 1;

/// The progress of a Pod towards a running container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// No node was found, with the scheduler's reason if it has one.
    Unscheduled(Option<String>),
    /// A node prepares it.
    Starting,
    /// The node cannot start it: reason and message.
    Stuck { reason: String, message: String },
    /// Its program runs.
    Running,
    /// Its program ended, or never started.
    Ended(ProgramExit),
}

/// How the container's program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramExit {
    pub(crate) exit_code: Option<i64>,
    pub(crate) oom_killed: bool,
    /// The limit of its lifetime, if the cluster ended it for that.
    pub(crate) lifetime_over: Option<Duration>,
    /// Reason and message of the Pod or of the container that failed.
    pub(crate) why: String,
}

/// Returns the state of the container's own program.
pub(crate) fn main_state(pod: &Pod) -> PodState {
    let Some(status) = &pod.status else { return PodState::Unscheduled(None) };
    let main = container(status.container_statuses.as_deref(), MAIN);
    let ended = main.and_then(|it| it.state.as_ref()).and_then(|it| it.terminated.as_ref());
    let phase = status.phase.as_deref().unwrap_or_default();
    if ended.is_some() || matches!(phase, "Succeeded" | "Failed") {
        let of_guest = container(status.init_container_statuses.as_deref(), GUEST);
        let of_guest = of_guest.and_then(|it| it.state.as_ref()).and_then(|it| it.terminated.as_ref());
        let why = ended.or(of_guest.filter(|it| it.exit_code != 0));
        let texts = [&status.reason, &status.message].into_iter().flatten().cloned();
        let texts = texts.chain(why.iter().flat_map(|it| [it.reason.clone(), it.message.clone()]).flatten());
        return PodState::Ended(ProgramExit {
            exit_code: ended.map(|it| i64::from(it.exit_code)),
            oom_killed: ended.is_some_and(|it| it.reason.as_deref() == Some("OOMKilled")),
            lifetime_over: lifetime_over(pod),
            why: texts.collect::<Vec<_>>().join(": "),
        });
    }
    if main.and_then(|it| it.state.as_ref()).is_some_and(|it| it.running.is_some()) {
        return PodState::Running;
    }
    let all = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let waiting = all.filter_map(|it| it.state.as_ref()?.waiting.as_ref());
    let stuck =
        waiting.into_iter().find(|state| state.reason.as_deref().is_some_and(|it| PERMANENT_FAILURES.contains(&it)));
    if let Some(it) = stuck {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        return PodState::Stuck { reason: text(&it.reason), message: text(&it.message) };
    }
    match pod.spec.as_ref().and_then(|it| it.node_name.as_ref()) {
        Some(_) => PodState::Starting,
        None => PodState::Unscheduled(unscheduled(pod)),
    }
}

/// `None` for a deadline by which [`stop`](crate::stop::stop) ended it.
fn lifetime_over(pod: &Pod) -> Option<Duration> {
    let reason = pod.status.as_ref()?.reason.as_deref();
    let limit = u64::try_from(pod.spec.as_ref()?.active_deadline_seconds?).ok()?;
    (reason == Some("DeadlineExceeded") && limit > STOP_DEADLINE).then(|| Duration::from_secs(limit))
}

fn unscheduled(pod: &Pod) -> Option<String> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let found = conditions.find(|it| it.type_ == "PodScheduled" && it.reason.as_deref() == Some("Unschedulable"));
    found.map(|it| it.message.clone().unwrap_or_default())
}

/// Returns why its node counts as lost: its containers were running, and the node no longer reports their state.
pub(crate) fn node_lost(pod: &Pod) -> Option<Error> {
    if main_state(pod) != PodState::Running {
        return None;
    }
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let ready = conditions.find(|it| it.type_ == "Ready" && it.status != "True")?;
    let since = ready.last_transition_time.as_ref().map(|it| format!(" since {}", it.0)).unwrap_or_default();
    let node = pod.spec.as_ref().and_then(|it| it.node_name.clone()).unwrap_or_else(|| "unknown".into());
    Some(Error::NodeLost { node, reason: format!("the node does not report{since}") })
}

/// Whether the init container reads its input.
pub(crate) fn is_guest_waiting(pod: &Pod) -> bool {
    guest_state(pod).is_some_and(|it| it.running.is_some())
}

/// Whether it has ended successfully.
pub(crate) fn is_starting_guest_done(pod: &Pod) -> bool {
    guest_state(pod).and_then(|it| it.terminated.as_ref()).is_some_and(|it| it.exit_code == 0)
}

fn guest_state(pod: &Pod) -> Option<&ContainerState> {
    container(pod.status.as_ref()?.init_container_statuses.as_deref(), GUEST)?.state.as_ref()
}

fn container<'a>(all: Option<&'a [StatusOf]>, name: &str) -> Option<&'a StatusOf> {
    all?.iter().find(|it| it.name == name)
}

/// Returns the status that all engines share. Its program may run before `start` was called: until then the status is
/// created.
pub(crate) fn status(pod: &Pod) -> ContainerStatus {
    let started = pod.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(STARTED));
    match main_state(pod) {
        PodState::Ended(_) => ContainerStatus::Exited,
        PodState::Running if started => ContainerStatus::Running,
        _ => ContainerStatus::Created,
    }
}

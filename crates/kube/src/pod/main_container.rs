//! The main container: the guest as PID 1, or a program that only waits.

use std::collections::BTreeMap;

use coracle_protocol::paths;
use coracle_runtime::{CreateSpec, Limits};
use coracle_types::ByteSize;
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::security::main_security;
use super::spec::PodRequest;
use super::volumes::main_mounts;
use crate::names::MAIN;

/// PID 1 of a container without a guest: PID 1 ignores TERM by default, so it is trapped.
const WAIT: &str = "trap 'exit 143' TERM INT; while :; do sleep 2147483647 & wait; done";

/// Memory that a node reserves for a container with a higher limit. The rest is shared, since agents' containers mostly
/// wait.
const REQUESTED_MEMORY: ByteSize = ByteSize::mib(256);

/// The reserved CPU, in thousandths of a core.
const REQUESTED_MILLICORES: u64 = 100;

pub(super) fn main_container(request: PodRequest<'_>) -> Container {
    let spec = request.placed.spec();
    Container {
        name: MAIN.into(),
        image: Some(request.image.to_owned()),
        image_pull_policy: Some("IfNotPresent".into()),
        command: Some(with_preparation(spec, program(request))),
        working_dir: Some("/".into()),
        resources: Some(resources(spec.limits)),
        security_context: Some(main_security(spec)),
        volume_mounts: Some(main_mounts(request.placed)).filter(|it| !it.is_empty()),
        ..Container::default()
    }
}

fn program(request: PodRequest<'_>) -> Vec<String> {
    if request.placed.guest().is_none() {
        return ["/bin/sh", "-c", WAIT].map(str::to_owned).into();
    }
    let lifeline = request.placed.spec().lifeline.map(|it| format!("--lifeline={}", it.as_secs().max(1)));
    [paths::PROGRAM.to_owned(), "init".to_owned()].into_iter().chain(lifeline).collect()
}

/// A Pod has no ulimits, and its directories in memory are open to all: a shell sets both before it becomes PID 1.
fn with_preparation(spec: &CreateSpec, program: Vec<String>) -> Vec<String> {
    let modes = spec.tmpfs.iter().map(|it| (format!("{:o}", it.mode), it.at.to_string()));
    let nofile = spec.ulimits.nofile.map(|it| format!("ulimit -n {it} && "));
    let core = spec.ulimits.core.map(|it| format!("ulimit -c {} && ", it.div_ceil(512)));
    let chmod: Vec<_> = modes.collect();
    if chmod.is_empty() && nofile.is_none() && core.is_none() {
        return program;
    }
    // Paths are arguments, never text of the script.
    let shift = "chmod \"$1\" \"$2\" 2>/dev/null; shift 2; ".repeat(chmod.len());
    let script = format!("{shift}{}{}exec \"$@\"", nofile.unwrap_or_default(), core.unwrap_or_default());
    let shell = ["/bin/sh", "-c", &script, "coracle"].map(str::to_owned);
    shell.into_iter().chain(chmod.into_iter().flat_map(|(mode, at)| [mode, at])).chain(program).collect()
}

fn resources(limits: Limits) -> ResourceRequirements {
    let cpus = limits.cpus.map(millicores);
    let memory = limits.memory.map(|it| it.0);
    let amounts = |memory: Option<u64>, cpus: Option<u64>| {
        let memory = memory.map(|it| ("memory".to_owned(), Quantity(it.to_string())));
        let cpus = cpus.map(|it| ("cpu".to_owned(), Quantity(format!("{it}m"))));
        let amounts: BTreeMap<_, _> = memory.into_iter().chain(cpus).collect();
        Some(amounts).filter(|it| !it.is_empty())
    };
    let requested_cpus = cpus.map_or(REQUESTED_MILLICORES, |it| it.min(REQUESTED_MILLICORES));
    ResourceRequirements {
        limits: amounts(memory, cpus),
        requests: amounts(memory.map(|it| it.min(REQUESTED_MEMORY.0)), Some(requested_cpus)),
        claims: None,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of cores is small and positive")]
fn millicores(cpus: f64) -> u64 {
    (cpus * 1000.0).ceil().max(1.0) as u64
}

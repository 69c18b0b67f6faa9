//! The Pod of a requested container.

use coracle_runtime::{CreateSpec, GuestDelivery, NetworkAttachment, Placed};
use coracle_types::{Capability, EngineKind, Error, Result};
use k8s_openapi::api::core::v1::{HostAlias, LocalObjectReference, Pod, PodDNSConfig, PodSpec, Toleration};

use super::guest_container::guest_container;
use super::main_container::main_container;
use super::metadata::metadata;
use super::security::pod_security;
use super::volumes::volumes;
use crate::names::object_name;
use crate::settings::KubeSettings;

/// Time between TERM and KILL when the cluster ends a Pod.
const GRACE_SECONDS: i64 = 10;

/// Minimum lifetime in seconds. One second is the deadline by which `stop` ends a Pod.
const SHORTEST_LIFETIME: i32 = 2;

/// A container to create, with further facts for the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodRequest<'a> {
    pub(crate) placed: &'a Placed,
    pub(crate) settings: &'a KubeSettings,
    pub(crate) namespace: &'a str,
    /// The id of the container.
    pub(crate) id: &'a str,
    /// The image by its registry and digest.
    pub(crate) image: &'a str,
    /// The environment of the image.
    pub(crate) image_env: &'a [String],
}

/// Builds the Pod.
///
/// # Errors
/// [`Error::Unsupported`] for what a Pod cannot do.
pub(crate) fn pod(request: PodRequest<'_>) -> Result<Pod> {
    let PodRequest { placed, settings, .. } = request;
    let spec = placed.spec();
    check(placed)?;
    let network = network_name(placed.network());
    let pod = PodSpec {
        restart_policy: Some("Never".into()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        active_deadline_seconds: lifetime(request),
        hostname: Some(hostname(spec)),
        subdomain: network.clone(),
        dns_config: network.map(|it| search_domain(&it, request.namespace)),
        host_aliases: host_aliases(spec)?,
        security_context: Some(pod_security()),
        runtime_class_name: settings.runtime_class.clone(),
        image_pull_secrets: settings.image_pull_secret.clone().map(|name| vec![LocalObjectReference { name }]),
        node_selector: Some(settings.node_selector.clone()).filter(|it| !it.is_empty()),
        tolerations: Some(settings.tolerations.iter().map(toleration).collect::<Vec<_>>()).filter(|it| !it.is_empty()),
        init_containers: guest_container(request).map(|it| vec![it]),
        containers: vec![main_container(request)],
        volumes: Some(volumes(placed)).filter(|it| !it.is_empty()),
        ..PodSpec::default()
    };
    Ok(Pod { metadata: metadata(request)?, spec: Some(pod), status: None })
}

/// Seconds that the container may run. The cluster enforces this limit even without a client. A Pod's deadline can only
/// be lowered, so it cannot serve as a lease.
pub(crate) fn lifetime(request: PodRequest<'_>) -> Option<i64> {
    let limit = request.settings.max_lifetime.filter(|_| !request.placed.spec().persistent)?;
    Some(i64::from(i32::try_from(limit.as_secs()).unwrap_or(i32::MAX).max(SHORTEST_LIFETIME)))
}

/// Refuses what a Pod cannot do, before anything is created.
fn check(placed: &Placed) -> Result<()> {
    let spec = placed.spec();
    let bound = matches!(placed.guest(), Some(GuestDelivery::Bound { .. }));
    let unsupported_features = [
        (bound || !spec.mounts.is_empty(), Capability::Bind),
        (!spec.ports.is_empty(), Capability::Publish),
        (spec.gpu, Capability::Gpu),
        (spec.image_health, Capability::HealthCheck),
        (*placed.network() == NetworkAttachment::Host, Capability::HostNetwork),
    ];
    match unsupported_features.into_iter().find(|it| it.0) {
        Some((_, capability)) => Err(unsupported(capability)),
        None => Ok(()),
    }
}

fn unsupported(capability: Capability) -> Error {
    Error::Unsupported { engine: EngineKind::Kubernetes, capability }
}

/// The Service with the names of a network's members, if there is a network.
pub(super) fn network_name(network: &NetworkAttachment) -> Option<String> {
    match network {
        NetworkAttachment::Id(id) => Some(object_name(id)),
        _ => None,
    }
}

/// Lets members of a network find each other by their short names, as on other engines.
fn search_domain(service: &str, namespace: &str) -> PodDNSConfig {
    PodDNSConfig { searches: Some(vec![format!("{service}.{namespace}.svc.cluster.local")]), ..PodDNSConfig::default() }
}

fn hostname(spec: &CreateSpec) -> String {
    let name = spec.hostname();
    name[..name.len().min(63)].trim_matches('-').to_owned()
}

/// The engine's host has no address that a Pod could use.
fn host_aliases(spec: &CreateSpec) -> Result<Option<Vec<HostAlias>>> {
    let alias = |it: &coracle_runtime::HostEntry| {
        let ip = it.address.ok_or_else(|| unsupported(Capability::HostEntries))?.to_string();
        Ok(HostAlias { ip, hostnames: Some(vec![it.name.clone()]) })
    };
    let aliases: Vec<_> = spec.add_hosts.iter().map(alias).collect::<Result<_>>()?;
    Ok(Some(aliases).filter(|it| !it.is_empty()))
}

fn toleration(it: &crate::KubeToleration) -> Toleration {
    let operator = if it.value.is_some() { "Equal" } else { "Exists" };
    Toleration {
        key: Some(it.key.clone()),
        operator: Some(operator.into()),
        value: it.value.clone(),
        effect: it.effect.clone(),
        toleration_seconds: None,
    }
}

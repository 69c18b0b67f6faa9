//! The objects of networks. Pure.

use std::collections::BTreeMap;

use coracle_runtime::{Network, NetworkCreate};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource as _;
use serde::{Deserialize, Serialize};

use crate::names::{CORACLE, LABELS, MANAGED_BY, NAME, NETWORK, NETWORK_LABEL, is_label, object_name};
use crate::pod::{ALONE, NO_NETWORK};

/// The properties of a network, stored in its policy.
#[derive(Serialize, Deserialize)]
struct Properties {
    internal: bool,
}

/// Pods without a network: no inbound and no outbound traffic.
pub(super) fn nothing() -> NetworkPolicy {
    NetworkPolicy {
        metadata: fixed(NO_NETWORK),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(members(NO_NETWORK)),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            ..NetworkPolicySpec::default()
        }),
    }
}

/// Pods with outbound traffic that no other Pod can reach.
pub(super) fn alone() -> NetworkPolicy {
    NetworkPolicy {
        metadata: fixed(ALONE),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(members(ALONE)),
            policy_types: Some(vec!["Ingress".into()]),
            ..NetworkPolicySpec::default()
        }),
    }
}

/// A network whose members reach each other, and also the outside unless it is internal.
pub(crate) fn policy(network: &NetworkCreate) -> serde_json::Result<NetworkPolicy> {
    let own = || NetworkPolicyPeer {
        pod_selector: Some(members(&object_name(network.name.as_str()))),
        ..NetworkPolicyPeer::default()
    };
    let inward = NetworkPolicyIngressRule { from: Some(vec![own()]), ports: None };
    // The resolver is a Pod of another namespace.
    let dns = ["UDP", "TCP"].map(|it| NetworkPolicyPort {
        port: Some(IntOrString::Int(53)),
        protocol: Some(it.into()),
        end_port: None,
    });
    let outward = vec![
        NetworkPolicyEgressRule { to: Some(vec![own()]), ports: None },
        NetworkPolicyEgressRule { to: None, ports: Some(dns.into()) },
    ];
    let mut types = vec!["Ingress".to_owned()];
    types.extend(network.internal.then(|| "Egress".to_owned()));
    Ok(NetworkPolicy {
        metadata: named(network)?,
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(members(&object_name(network.name.as_str()))),
            policy_types: Some(types),
            ingress: Some(vec![inward]),
            egress: network.internal.then_some(outward),
        }),
    })
}

/// The headless Service that makes DNS answer names of members. The policy, which is the network, owns it.
pub(crate) fn service(network: &NetworkCreate, policy: &NetworkPolicy) -> serde_json::Result<Service> {
    let selector = [(NETWORK_LABEL.to_owned(), object_name(network.name.as_str()))];
    // Old servers require a port even for a headless Service.
    let port = ServicePort { name: Some("any".into()), port: 1, ..ServicePort::default() };
    let owners = policy.controller_owner_ref(&()).map(|it| {
        // No controller manages it, and nothing waits for its end.
        vec![OwnerReference { controller: None, block_owner_deletion: None, ..it }]
    });
    Ok(Service {
        metadata: ObjectMeta { owner_references: owners, ..named(network)? },
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            publish_not_ready_addresses: Some(true),
            selector: Some(selector.into()),
            ports: Some(vec![port]),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// Returns the network of a policy; `None` for a policy of another purpose.
pub(crate) fn network(policy: &NetworkPolicy) -> Option<Network> {
    let annotations = policy.metadata.annotations.as_ref()?;
    let properties: Properties = serde_json::from_str(annotations.get(NETWORK)?).ok()?;
    let name = annotations.get(NAME)?.clone();
    Some(Network {
        id: name.clone(),
        name,
        labels: annotations.get(LABELS).and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default(),
        internal: properties.internal,
        gateways: Vec::new(),
        subnets: Vec::new(),
    })
}

fn members(network: &str) -> LabelSelector {
    let labels = [(NETWORK_LABEL, network), (MANAGED_BY, CORACLE)];
    let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}

fn fixed(name: &str) -> ObjectMeta {
    let labels = [(MANAGED_BY.to_owned(), CORACLE.to_owned())];
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() }
}

fn named(network: &NetworkCreate) -> serde_json::Result<ObjectMeta> {
    let all: BTreeMap<_, _> = network.labels.iter().cloned().collect();
    let annotations = [
        (NAME, network.name.to_string()),
        (LABELS, serde_json::to_string(&all)?),
        (NETWORK, serde_json::to_string(&Properties { internal: network.internal })?),
    ];
    let selected = all.iter().filter(|(key, value)| is_label(key, value));
    let mut labels: BTreeMap<_, _> = selected.map(|(key, value)| (key.clone(), value.clone())).collect();
    labels.insert(MANAGED_BY.to_owned(), CORACLE.to_owned());
    Ok(ObjectMeta {
        name: Some(object_name(network.name.as_str())),
        labels: Some(labels),
        annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use coracle_types::NetworkName;

    use super::*;

    #[test]
    fn a_policy_stores_its_network() {
        let labels = vec![("coracle.sig".to_owned(), "x".repeat(64))];
        let name = NetworkName::parse("Net.1").unwrap();
        let created = NetworkCreate { name, labels: labels.clone(), reach: true, internal: true };
        let made = network(&policy(&created).unwrap()).unwrap();
        assert_eq!((made.name.as_str(), made.internal), ("Net.1", true));
        assert_eq!(made.labels, labels.into_iter().collect());
        assert_eq!(network(&nothing()), None);
        assert_eq!(network(&alone()), None);
    }
}

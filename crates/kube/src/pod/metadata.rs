//! Labels and annotations of a Pod: the record of its container.

use std::collections::BTreeMap;

use coracle_runtime::NetworkAttachment;
use coracle_types::{Error, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::spec::{PodRequest, network_name};
use crate::names::{
    CORACLE, ID, ID_LABEL, IMAGE_ENV, IMAGE_ID, LABELS, LIMITS, MANAGED_BY, NAME, NETWORK_LABEL, id_label, is_label,
    object_name,
};

/// Network of a Pod without outbound access: the value of its label, and the name of the policy.
pub(crate) const NO_NETWORK: &str = "coracle-none";

/// Network of a Pod that no other Pod can reach.
pub(crate) const ALONE: &str = "coracle-default";

/// Builds name, labels for selectors, and annotations with everything.
pub(crate) fn metadata(request: PodRequest<'_>) -> Result<ObjectMeta> {
    let spec = request.placed.spec();
    let json = |it: serde_json::Result<String>| {
        it.map_err(|err| Error::Unreadable { verb: "create", detail: err.to_string() })
    };
    let annotations = [
        (ID, request.id.to_owned()),
        (NAME, spec.name.to_string()),
        (LABELS, json(serde_json::to_string(&spec.labels))?),
        (IMAGE_ID, request.placed.image().to_string()),
        (IMAGE_ENV, json(serde_json::to_string(request.image_env))?),
        (LIMITS, json(serde_json::to_string(&spec.limits))?),
    ];
    Ok(ObjectMeta {
        name: Some(object_name(spec.name.as_str())),
        namespace: Some(request.namespace.to_owned()),
        labels: Some(labels(request)),
        annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
        ..ObjectMeta::default()
    })
}

fn labels(request: PodRequest<'_>) -> BTreeMap<String, String> {
    let spec = request.placed.spec();
    let network = match request.placed.network() {
        NetworkAttachment::None => NO_NETWORK.to_owned(),
        NetworkAttachment::Id(_) => network_name(request.placed.network()).unwrap_or_default(),
        _ => ALONE.to_owned(),
    };
    let ours =
        [(MANAGED_BY, CORACLE.to_owned()), (ID_LABEL, id_label(request.id).to_owned()), (NETWORK_LABEL, network)];
    let theirs = spec.labels.iter().filter(|(key, value)| is_label(key, value));
    theirs
        .map(|(key, value)| (key.clone(), value.clone()))
        .chain(ours.map(|(key, value)| (key.to_owned(), value)))
        .collect()
}

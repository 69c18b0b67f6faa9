//! Lists containers by their labels.

use coracle_runtime::{Container, LabelFilter};
use coracle_types::Result;

use crate::cluster::Cluster;
use crate::find::{is_present, list_pods};
use crate::names::{CORACLE, MANAGED_BY, is_label};
use crate::pod::container_of;

/// The server selects by labels that are valid in Kubernetes, and the rest is compared with the annotation here.
/// Unreadable Pods are left out, since they must not hide the others.
pub(crate) async fn list(cluster: &Cluster, filter: &LabelFilter) -> Result<Vec<Container>> {
    let pods = list_pods(cluster, &selector(filter)).await?;
    let containers = pods.iter().filter(|it| is_present(it)).filter_map(|it| match container_of(it) {
        Ok(container) => Some(container),
        Err(err) => {
            tracing::warn!(pod = it.metadata.name, %err, "a Pod is no container of ours");
            None
        }
    });
    Ok(containers.filter(|it| filter.admits(&it.labels)).collect())
}

/// Builds the selector. Keys without a value are left out, since Kubernetes may not have accepted their values as
/// labels.
fn selector(filter: &LabelFilter) -> String {
    let selected = filter.0.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
    let selected = selected.filter(|(key, value)| is_label(key, value)).map(|(key, value)| format!("{key}={value}"));
    [format!("{MANAGED_BY}={CORACLE}")].into_iter().chain(selected).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_labels_are_selected_by_the_server() {
        let filter = LabelFilter(vec![
            ("coracle.managed".into(), Some("true".into())),
            ("coracle.created".into(), Some("2026-11-26T18:00:00Z".into())),
            ("coracle.id".into(), None),
        ]);
        assert_eq!(selector(&filter), "app.kubernetes.io/managed-by=coracle,coracle.managed=true");
    }
}

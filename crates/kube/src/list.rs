//! Containers by their labels.

use coracle_runtime::{Container, LabelFilter};
use coracle_types::Result;

use crate::cluster::Cluster;
use crate::find::{is_present, list_pods};
use crate::names::{CORACLE, MANAGED_BY, is_label};
use crate::pod::container_of;

/// The server selects by what Kubernetes takes as labels, and what is left is compared with the annotation here. A Pod that
/// someone made unreadable is left out: it must not hide the others.
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

/// A key whose value is not asked for may be one that Kubernetes did not take.
fn selector(filter: &LabelFilter) -> String {
    let asked = filter.0.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
    let asked = asked.filter(|(key, value)| is_label(key, value)).map(|(key, value)| format!("{key}={value}"));
    [format!("{MANAGED_BY}={CORACLE}")].into_iter().chain(asked).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_of_kubernetes_grammar_are_selected_by_the_server() {
        let filter = LabelFilter(vec![
            ("coracle.managed".into(), Some("true".into())),
            ("coracle.created".into(), Some("2026-11-26T18:00:00Z".into())),
            ("coracle.id".into(), None),
        ]);
        assert_eq!(selector(&filter), "app.kubernetes.io/managed-by=coracle,coracle.managed=true");
    }
}

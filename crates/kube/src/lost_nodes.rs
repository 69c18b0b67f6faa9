//! Nodes that recently did not answer. The cluster itself notices after some 40 seconds, and schedules Pods on them
//! until then.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm,
};
use tokio::time::Instant;

/// How long a node is avoided: longer than a cluster needs to notice, but not much, since the node may have been
/// restarted.
const AVOIDED_FOR: Duration = Duration::from_secs(60);

/// The nodes that did not answer, with the time.
#[derive(Debug, Default)]
pub(crate) struct LostNodes(Mutex<BTreeMap<String, Instant>>);

impl LostNodes {
    pub(crate) fn add(&self, node: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned(), Instant::now());
    }

    /// Called when a node answers.
    pub(crate) fn forget(&self, node: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
    }

    /// Prefers other nodes for a Pod. Only a preference, since the only node of a cluster may be back at once.
    pub(crate) fn affinity(&self) -> Option<Affinity> {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|_, since| since.elapsed() < AVOIDED_FOR);
        if nodes.is_empty() {
            return None;
        }
        let elsewhere = NodeSelectorRequirement {
            key: "kubernetes.io/hostname".into(),
            operator: "NotIn".into(),
            values: Some(nodes.keys().cloned().collect()),
        };
        let preference = NodeSelectorTerm { match_expressions: Some(vec![elsewhere]), match_fields: None };
        let preferred = vec![PreferredSchedulingTerm { preference, weight: 100 }];
        let node_affinity = NodeAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(preferred),
            ..NodeAffinity::default()
        };
        Some(Affinity { node_affinity: Some(node_affinity), ..Affinity::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_did_not_answer_is_avoided_for_a_minute_or_until_it_answers() {
        let nodes = LostNodes::default();
        assert_eq!(nodes.affinity(), None);
        nodes.add("one");
        nodes.add("two");
        nodes.forget("two");
        let text = serde_json::to_string(&nodes.affinity()).unwrap();
        assert!(text.contains(r#""operator":"NotIn","values":["one"]"#), "{text}");
        tokio::time::advance(AVOIDED_FOR).await;
        assert_eq!(nodes.affinity(), None);
    }
}

//! The policy for stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use coracle_runtime::{Limits, Policy, Protocol};
use coracle_types::LabelNamespace;

/// The policy for a stack. Plain data; the agent's file can request less and never more.
pub struct Rules<'a> {
    /// The policy for every container.
    pub policy: &'a Policy,
    /// The prefix of Coracle's labels: no file may use it.
    pub label_namespace: &'a LabelNamespace,
    /// Every published port gets a free host port; otherwise only those that are taken.
    pub namespace: bool,
    /// Images may be built (`compose.allow_build`).
    pub allow_build: bool,
    /// Maximum number of containers in a stack (`compose.max_services`).
    pub max_services: usize,
    /// The limits of a service without limits. Lowered to the policy's maximum.
    pub default_limits: Limits,
    /// Root inside is root on the engine's host: a writable bind then needs a user that is not root.
    pub root_is_host: bool,
    /// Names below a writable bind that are mounted read-only over it (`workspace.protected`).
    pub protected: &'a [String],
    /// Paths that services of other stacks bind: no service of this one may replace them.
    pub bound_by_others: &'a [PathBuf],
    /// Values for `environment` of configs and secrets, as for `${NAME}`: the `env` input of the call, and
    /// nothing of the host. An unknown name is refused.
    pub env: &'a BTreeMap<String, String>,
    /// Whether a host port can be bound now.
    pub is_free: &'a (dyn Fn(u16, Protocol) -> bool + Send + Sync),
    /// Networks of Coracle, by the engine's names, that a file may join as external ones.
    pub our_networks: &'a BTreeSet<String>,
    /// Volumes of Coracle that a file may use as external ones.
    pub our_volumes: &'a BTreeSet<String>,
}

static NO_VARIABLES: BTreeMap<String, String> = BTreeMap::new();
static NOTHING_OF_OURS: BTreeSet<String> = BTreeSet::new();

impl<'a> Rules<'a> {
    /// Rules for an engine with root and no other stacks: at most 20 containers, no builds, no variables, and every requested
    /// host port counts as free.
    #[must_use]
    pub fn new(policy: &'a Policy, label_namespace: &'a LabelNamespace) -> Self {
        Self {
            policy,
            label_namespace,
            namespace: false,
            allow_build: false,
            max_services: 20,
            default_limits: Limits::default(),
            root_is_host: true,
            protected: &[],
            bound_by_others: &[],
            env: &NO_VARIABLES,
            is_free: &|_, _| true,
            our_networks: &NOTHING_OF_OURS,
            our_volumes: &NOTHING_OF_OURS,
        }
    }
}

impl fmt::Debug for Rules<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

//! What the policy says about stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use coracle_runtime::{Limits, Policy, Protocol};
use coracle_types::LabelNamespace;

/// What the person allows a stack. Plain data; the agent's file can ask for less and never for more.
pub struct Rules<'a> {
    /// What holds for every container.
    pub policy: &'a Policy,
    /// Our own labels begin with it: no file may use them.
    pub label_namespace: &'a LabelNamespace,
    /// Every published port gets a free host port; else only those that are taken (12.4).
    pub namespace: bool,
    /// Images may be built (`compose.allow_build`).
    pub allow_build: bool,
    /// How many containers a stack may have (`compose.max_services`).
    pub max_services: usize,
    /// What a service gets that asks for no limit. Lowered to the policy's ceilings.
    pub default_limits: Limits,
    /// Root inside is root on the engine's host: a writable bind then needs a user that is not root.
    pub root_is_host: bool,
    /// Names below a writable bind that lie read-only over it (`workspace.protected`).
    pub protected: &'a [String],
    /// What services of other stacks bind: no service of this one may exchange it.
    pub bound_by_others: &'a [PathBuf],
    /// What `environment` of configs and secrets is filled from, as `${NAME}` was: the `env` input of the call, and
    /// nothing of the host. A name that is not in it is refused.
    pub env: &'a BTreeMap<String, String>,
    /// Whether a port of the host can be bound now.
    pub is_free: &'a (dyn Fn(u16, Protocol) -> bool + Send + Sync),
    /// Networks of ours, by their engine's names, that a file may join as external ones.
    pub our_networks: &'a BTreeSet<String>,
    /// Volumes of ours that a file may use as external ones.
    pub our_volumes: &'a BTreeSet<String>,
}

impl fmt::Debug for Rules<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

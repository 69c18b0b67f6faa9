//! Which sandbox: that of a profile and of a domain of trust, on an engine.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use coracle_types::{ProfileName, WorkflowId};

/// Workflows of one domain share a container, and may see each other's files and processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// One workflow alone.
    Workflow(WorkflowId),
    /// A name that the user chose.
    Named(String),
}

/// The name of a sandbox in the state directory and of its session. Says nothing of what it was made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SandboxKey(String);

impl SandboxKey {
    /// Of a profile and a domain, on the engine at `endpoint`.
    #[must_use]
    pub fn new(profile: &ProfileName, domain: &Domain, endpoint: &str) -> Self {
        let domain = match domain {
            Domain::Workflow(id) => format!("workflow:{id}"),
            Domain::Named(word) => format!("named:{word}"),
        };
        // No part can hold a NUL, so no two triples are written alike.
        let digest = Sha256::digest(format!("{profile}\0{domain}\0{endpoint}"));
        Self(hex::encode(&digest[..8]))
    }

    /// One that was written down.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        (text.len() == 16 && digits).then(|| Self(text.to_owned()))
    }

    /// 16 hex digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x09_profiles_and_workflows_have_sandboxes_of_their_own_and_a_named_domain_is_shared() {
        let profile = |name: &str| ProfileName::parse(name).unwrap();
        let alone = |id: &str| Domain::Workflow(WorkflowId::parse(id).unwrap());
        let shared = Domain::Named("a".into());
        let all = [
            SandboxKey::new(&profile("one"), &alone("a"), "local"),
            SandboxKey::new(&profile("two"), &alone("a"), "local"),
            SandboxKey::new(&profile("one"), &alone("b"), "local"),
            SandboxKey::new(&profile("one"), &shared, "local"),
            SandboxKey::new(&profile("one"), &alone("a"), "unix:///run/other"),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(all[3], SandboxKey::new(&profile("one"), &shared, "local"));
    }
}

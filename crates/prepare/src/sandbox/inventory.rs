//! Lists all sandboxes, from stored records and from the engines.

use std::collections::BTreeSet;

use coracle_context::context::Context;
use coracle_context::failure::{Failure, slot_failure};
use coracle_lifecycle::{SlotInfo, SlotKey, SlotRole};
use coracle_sandbox::{Domain, SandboxDir, SandboxKey, key_of_session, session_of};
use coracle_types::{ContainerStatus, ProfileName, WorkflowId};
use jiff::Timestamp;
use serde::Serialize;

use super::{sandboxes, worktrees};
use crate::coding_agents;
use crate::sandbox::usual_profile;

/// A sandbox of which a record, a directory or a container exists.
#[derive(Clone, Debug)]
pub struct KnownSandbox {
    pub key: SandboxKey,
    /// The profile whose settings it uses.
    pub profile: ProfileName,
    /// What its workflows share, if it is configured.
    domain: Option<String>,
    pub workflows: Vec<WorkflowId>,
    /// The stored record of its container.
    slot: Option<SlotInfo>,
    /// An engine lists its container.
    on_engine: bool,
}

/// The state of a sandbox's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerState {
    Running,
    Paused,
    Stopped,
    /// It has no container; its files may exist.
    Missing,
    /// The engine has the container, but there is no record of it.
    Forgotten,
}

/// A row of the list of sandboxes.
#[derive(Debug, Serialize)]
pub struct SandboxRow {
    pub key: SandboxKey,
    pub profile: ProfileName,
    pub domain: Option<String>,
    pub workflows: Vec<WorkflowId>,
    pub state: ContainerState,
    pub image: Option<String>,
    /// When a command last started or ended in it.
    pub used_at: Option<Timestamp>,
}

/// Lists all of them, by key.
pub async fn known(cx: &Context) -> Result<Vec<KnownSandbox>, Failure> {
    let (all, worktrees, slots) = (sandboxes(cx)?, worktrees(cx)?, cx.session_containers()?);
    let views: Vec<_> =
        slots.all().map_err(slot_failure)?.into_iter().filter(|it| it.role == SlotRole::Sandbox).collect();
    let forgotten = slots.forgotten(cx.engines(), SlotRole::Sandbox).await.map_err(slot_failure)?;
    let remembered = SandboxDir::all(&all)?;
    let mut keys: BTreeSet<SandboxKey> = remembered.iter().map(|it| it.key.clone()).collect();
    keys.extend(views.iter().map(|it| &it.session).chain(&forgotten).filter_map(key_of_session));
    let endpoint = cx.runtime().await?.endpoint().address;
    let mut found = Vec::new();
    for key in keys.into_iter().chain(SandboxDir::keys(&all)?).collect::<BTreeSet<_>>() {
        let workflows = worktrees.remembered(key.as_str())?;
        let session = session_of(&key)?;
        let slot = views.iter().find(|it| it.session == session).cloned();
        let record = remembered.iter().find(|it| it.key == key);
        let on_engine = slot.is_some() || forgotten.contains(&session);
        // If only the log of a removed sandbox remains, it is not listed. Its repository is the last record to be
        // deleted.
        if record.is_none() && workflows.is_empty() && !on_engine && !worktrees.has_repository(key.as_str())? {
            continue;
        }
        let (of_key, domain) = origin(cx, &key, &workflows, &endpoint);
        let profile = record.map(|it| it.profile.clone()).or(of_key).unwrap_or_else(usual_profile);
        found.push(KnownSandbox { key, profile, domain, workflows, slot, on_engine });
    }
    Ok(found)
}

/// Finds the configured profile and named domain that have this key.
fn origin(
    cx: &Context,
    key: &SandboxKey,
    workflows: &[WorkflowId],
    endpoint: &str,
) -> (Option<ProfileName>, Option<String>) {
    let config = &cx.config.sandbox;
    let agents = coding_agents::ALL.iter().filter_map(|it| ProfileName::parse(it.name).ok());
    for name in config.profiles.keys().cloned().chain([usual_profile()]).chain(agents) {
        let is_of = |domain: &Domain| SandboxKey::new(&name, domain, endpoint) == *key;
        if let Some(word) = config.profile(&name).domain.filter(|it| is_of(&Domain::Named(it.clone()))) {
            return (Some(name), Some(word));
        }
        if workflows.iter().any(|it| is_of(&Domain::Workflow(it.clone()))) {
            return (Some(name), None);
        }
    }
    (None, None)
}

/// Lists the sandboxes for the user.
pub async fn overview(cx: &Context) -> Result<Vec<SandboxRow>, Failure> {
    let mut rows = Vec::new();
    for it in known(cx).await? {
        let state = state(cx, &it).await?;
        let KnownSandbox { key, profile, domain, workflows, slot, .. } = it;
        let (image, used_at) = slot.map(|it| (it.image, it.last_used_at)).unzip();
        rows.push(SandboxRow {
            key,
            profile,
            domain,
            workflows,
            state,
            image: image.filter(|it| !it.is_empty()),
            used_at,
        });
    }
    Ok(rows)
}

async fn state(cx: &Context, it: &KnownSandbox) -> Result<ContainerState, Failure> {
    let Some(slot) = &it.slot else {
        // The container has no record, or the sandbox of the workflow was never created.
        let forgotten = it.on_engine && it.workflows.is_empty();
        return Ok(if forgotten { ContainerState::Forgotten } else { ContainerState::Missing });
    };
    let status = cx
        .session_containers()?
        .status(cx.engines(), SlotKey::new(&slot.session, SlotRole::Sandbox))
        .await
        .map_err(slot_failure)?;
    Ok(match status {
        Some(ContainerStatus::Running) => ContainerState::Running,
        Some(ContainerStatus::Paused) => ContainerState::Paused,
        Some(
            ContainerStatus::Created | ContainerStatus::Exited | ContainerStatus::Dead | ContainerStatus::Restarting,
        ) => ContainerState::Stopped,
        None => ContainerState::Missing,
    })
}

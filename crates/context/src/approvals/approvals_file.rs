//! The file with the refused requests of one container, and the decisions about them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::state_file;
use coracle_proxy::Decision;
use coracle_sandbox::SandboxDir;
use coracle_types::ContainerName;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::rule_list::RuleList;
use crate::failure::Failure;
use crate::state::StateDir;

/// Maximum number of refused requests of a container in its file; older ones make room.
pub(super) const MAX_REQUESTS: usize = 50;

/// After this time without repetition, a refused request is no longer listed.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(1);

/// How long the permission for one request is valid.
const ONCE: SignedDuration = SignedDuration::from_mins(10);

/// How long to wait for the lock of a file.
const PATIENCE: Duration = Duration::from_secs(10);

/// A refused request that a rule would allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRequest {
    /// Identifies the request in commands.
    pub id: String,
    /// The rule that would allow it.
    pub rule: String,
    /// Why it was refused: a code of the proxy, or `requested` if the agent has requested the rule.
    pub code: String,
    /// Number of refusals.
    pub count: u64,
    /// The time of the first one.
    pub first: Timestamp,
    /// The time of the last one.
    pub last: Timestamp,
    /// The agent's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A program waits for the decision until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<Timestamp>,
    /// The user's decision, if it does not add a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

/// A decision about one refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decided {
    /// The next such request is allowed, until ten minutes after that time.
    Once(Timestamp),
    /// Such requests do not wait for the user again.
    Denied,
}

/// What the user decides about a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Allows one request.
    Once,
    /// Allows the rule, as long as the container exists.
    Session,
    /// Allows nothing, and lets no program wait for it.
    Deny,
}

/// The state of a proxy's approvals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerApprovals {
    /// The container's name for the user.
    pub container: String,
    /// Its session.
    pub session: Option<ContainerName>,
    /// The list of the configuration with its other rules.
    pub list: Option<RuleList>,
    /// The rules that the user has allowed.
    #[serde(default)]
    pub allowed: Vec<String>,
    /// The refused requests.
    #[serde(default)]
    pub requests: Vec<RefusedRequest>,
}

impl ContainerApprovals {
    /// The requests for which a program waits.
    pub fn waiting(&self) -> impl Iterator<Item = &RefusedRequest> {
        let now = Timestamp::now();
        self.requests.iter().filter(move |it| it.is_pending() && it.waits_until.is_some_and(|until| until > now))
    }

    pub(super) fn request(&mut self, rule: &str) -> Option<&mut RefusedRequest> {
        self.requests.iter_mut().find(|it| it.rule == rule)
    }

    /// Adds a refusal, or counts it.
    pub(super) fn add(&mut self, refused: Refused<'_>, file: &Path, count: u64, now: Timestamp) -> &mut RefusedRequest {
        self.requests.retain(|it| it.is_listed(now));
        if let Some(at) = self.requests.iter().position(|it| it.rule == refused.rule) {
            let request = &mut self.requests[at];
            (request.count, request.last) = (request.count.saturating_add(count), now);
            request.reason = refused.reason.map(str::to_owned).or(request.reason.take());
            return request;
        }
        while self.requests.len() >= MAX_REQUESTS {
            let oldest = (0..self.requests.len()).min_by_key(|at| self.requests[*at].last).unwrap_or_default();
            self.requests.remove(oldest);
        }
        self.requests.push(RefusedRequest {
            id: id(file, refused.rule),
            rule: refused.rule.to_owned(),
            code: refused.code.to_owned(),
            count,
            first: now,
            last: now,
            reason: refused.reason.map(str::to_owned),
            waits_until: None,
            decided: None,
        });
        let last = self.requests.len() - 1;
        &mut self.requests[last]
    }

    /// Uses the permission for one request up.
    pub(super) fn take_once(&mut self, rule: &str, now: Timestamp) -> bool {
        let is_it = |it: &RefusedRequest| it.rule == rule && it.decision(now) == Some(Decision::Once);
        let at = self.requests.iter().position(is_it);
        at.map(|at| self.requests.remove(at)).is_some()
    }
}

impl RefusedRequest {
    fn is_listed(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) < FORGOTTEN
    }

    /// The user's decision, as long as it is valid.
    pub(super) fn decision(&self, now: Timestamp) -> Option<Decision> {
        match self.decided? {
            Decided::Once(at) => (now.duration_since(at) < ONCE).then_some(Decision::Once),
            Decided::Denied => Some(Decision::Refused),
        }
    }

    /// Whether the user has not decided.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.decision(Timestamp::now()).is_none()
    }
}

/// The same rule of the same container has the same id.
fn id(file: &Path, rule: &str) -> String {
    let digest = Sha256::new().chain_update(file.as_os_str().as_encoded_bytes()).chain_update([0]).chain_update(rule);
    hex::encode(&digest.finalize()[..4])
}

/// A refusal to add.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused<'a> {
    pub(super) rule: &'a str,
    pub(super) code: &'a str,
    pub(super) reason: Option<&'a str>,
}

/// The file of one proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApprovalsFile(pub(super) PathBuf);

impl ApprovalsFile {
    /// That of the proxy with that directory.
    #[must_use]
    pub fn of(proxy: &SandboxDir) -> Self {
        Self(proxy.approvals())
    }

    /// Reads it; none if it is missing.
    ///
    /// # Errors
    /// `newer_version`; errors of the file system.
    pub fn read(&self) -> Result<Option<ContainerApprovals>, Failure> {
        let mut read: Option<ContainerApprovals> = state_file::read(&self.0)?;
        let now = Timestamp::now();
        if let Some(approvals) = &mut read {
            approvals.requests.retain(|it| it.is_listed(now));
        }
        Ok(read)
    }

    pub(super) async fn update<T>(&self, change: impl FnOnce(&mut ContainerApprovals) -> T) -> Result<T, Failure> {
        let _lock = state_file::lock(&self.0.with_extension("lock"), PATIENCE).await?;
        let before = state_file::read::<ContainerApprovals>(&self.0)?;
        let mut approvals = before.clone().unwrap_or_default();
        let result = change(&mut approvals);
        if before.as_ref() != Some(&approvals) {
            state_file::write(&self.0, &approvals)?;
        }
        Ok(result)
    }

    /// Records the user's decision about a request.
    ///
    /// # Errors
    /// `newer_version`; errors of the file system.
    pub async fn decide(&self, id: &str, choice: Choice) -> Result<(), Failure> {
        let now = Timestamp::now();
        self.update(|approvals| {
            let Some(at) = approvals.requests.iter().position(|it| it.id == id) else { return };
            match choice {
                Choice::Once => approvals.requests[at].decided = Some(Decided::Once(now)),
                Choice::Deny => approvals.requests[at].decided = Some(Decided::Denied),
                Choice::Session => {
                    let rule = approvals.requests.remove(at).rule;
                    if !approvals.allowed.contains(&rule) {
                        approvals.allowed.push(rule);
                    }
                }
            }
        })
        .await
    }

    /// Removes a rule that the user has allowed. Returns whether it was there.
    ///
    /// # Errors
    /// `newer_version`; errors of the file system.
    pub async fn revoke(&self, rule: &str) -> Result<bool, Failure> {
        self.update(|approvals| {
            let count = approvals.allowed.len();
            approvals.allowed.retain(|it| it != rule);
            approvals.allowed.len() < count
        })
        .await
    }
}

/// Returns the approvals of all proxies, by container.
///
/// # Errors
/// `newer_version`; errors of the file system.
pub fn all(state: &StateDir) -> Result<Vec<(ApprovalsFile, ContainerApprovals)>, Failure> {
    let mut all = Vec::new();
    for proxy in state.proxies()? {
        let file = ApprovalsFile(proxy.join("approvals.json"));
        all.extend(file.read()?.map(|it| (file, it)));
    }
    all.sort_by(|a, b| (&a.1.container, &a.0).cmp(&(&b.1.container, &b.0)));
    Ok(all)
}

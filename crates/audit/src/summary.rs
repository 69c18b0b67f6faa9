//! Summarises acts by session.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::history::AuditedAct;

/// The acts of one session.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SessionSummary {
    /// Its name.
    pub session: String,
    /// The front ends that it used.
    pub by: BTreeSet<String>,
    /// When its first act was announced, among those that were read.
    pub first: Option<String>,
    /// When its last act was announced.
    pub last: Option<String>,
    /// All of its acts.
    pub total: ActCount,
    /// Its acts by operation.
    pub operations: BTreeMap<String, ActCount>,
    /// The containers that its acts were on, by name.
    pub containers: BTreeSet<String>,
}

/// Numbers of acts by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ActCount {
    /// All acts.
    pub acts: u64,
    /// Those that ended with an error.
    pub failed: u64,
    /// Those that a rule denied.
    pub denied: u64,
    /// Those that were cancelled.
    pub cancelled: u64,
    /// Acts without a result: they are running, or their process died.
    pub unfinished: u64,
    /// Successful acts whose command had another exit code than 0.
    pub nonzero_exits: u64,
    /// The total duration, in milliseconds.
    pub duration_ms: u64,
    /// The longest duration, in milliseconds.
    pub longest_ms: u64,
}

/// Summarises acts by session, in the order of their last acts. The input has the oldest act first.
#[must_use]
pub fn summarize(acts: &[AuditedAct]) -> Vec<SessionSummary> {
    let mut sessions: BTreeMap<&str, (usize, SessionSummary)> = BTreeMap::new();
    for (at, act) in acts.iter().enumerate() {
        let session = act.session.as_deref().unwrap_or_default();
        let (last, summary) = sessions.entry(session).or_default();
        *last = at;
        summary.add(act);
    }
    let mut sessions: Vec<_> = sessions.into_values().collect();
    sessions.sort_by_key(|it| it.0);
    sessions.into_iter().map(|it| it.1).collect()
}

impl SessionSummary {
    fn add(&mut self, act: &AuditedAct) {
        self.session = act.session.clone().unwrap_or_default();
        self.by.extend(act.by.clone());
        self.first = self.first.take().or_else(|| act.time.clone());
        self.last = act.time.clone().or_else(|| self.last.take());
        self.containers.extend(act.container.clone());
        self.total.add(act);
        self.operations.entry(act.operation.clone().unwrap_or_default()).or_default().add(act);
    }
}

impl ActCount {
    fn add(&mut self, act: &AuditedAct) {
        self.acts += 1;
        match act.outcome {
            "failed" => self.failed += 1,
            "denied" => self.denied += 1,
            "cancelled" => self.cancelled += 1,
            "unfinished" => self.unfinished += 1,
            _ => self.nonzero_exits += u64::from(act.exit_code.is_some_and(|it| it != 0)),
        }
        let took = act.duration_ms.unwrap_or_default();
        self.duration_ms += took;
        self.longest_ms = self.longest_ms.max(took);
    }
}

#[cfg(test)]
mod tests {
    use super::{ActCount, AuditedAct, summarize};

    fn act(session: &str, operation: &str, outcome: &'static str, duration_ms: Option<u64>) -> AuditedAct {
        let [session, operation] = [session, operation].map(|it| Some(it.to_owned()));
        AuditedAct { session, operation, outcome, duration_ms, ..AuditedAct::default() }
    }

    #[test]
    fn acts_are_summed_by_session_and_operation() {
        let acts = [
            act("new", "create", "done", Some(900)),
            act("old", "list", "done", Some(4)),
            AuditedAct { exit_code: Some(3), ..act("new", "exec", "done", Some(10)) },
            act("new", "exec", "denied", Some(1)),
            act("new", "exec", "failed", Some(20)),
            act("new", "exec", "unfinished", None),
        ];
        let sessions = summarize(&acts);
        assert_eq!(sessions.iter().map(|it| it.session.as_str()).collect::<Vec<_>>(), ["old", "new"]);
        let exec = ActCount {
            acts: 4,
            failed: 1,
            denied: 1,
            unfinished: 1,
            nonzero_exits: 1,
            duration_ms: 31,
            longest_ms: 20,
            ..ActCount::default()
        };
        assert_eq!(sessions[1].operations["exec"], exec);
        assert_eq!(sessions[1].total, ActCount { acts: 5, duration_ms: 931, longest_ms: 900, ..exec });
    }
}

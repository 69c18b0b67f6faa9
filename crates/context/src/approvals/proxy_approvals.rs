//! The approvals of a proxy, in the process that runs it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use coracle_proxy::policy::EgressPolicy;
use coracle_proxy::{Approvals, Decision, ProxyEvent};
use coracle_types::{ContainerName, is_deceptive};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::approvals_file::{ApprovalsFile, ContainerApprovals, Refused};
use super::rule_list::RuleList;
use crate::failure::Failure;

/// Maximum number of requests of a container that wait for the user; others are refused immediately.
const MAX_WAITING: usize = 16;

/// How often repetitions are written.
const WRITES: Duration = Duration::from_secs(1);

/// How often a waiting request looks for the decision.
const LOOKS: Duration = Duration::from_millis(200);

/// The approvals of one proxy, in its process.
#[derive(Clone, Debug)]
pub struct ProxyApprovals(Arc<Inner>);

/// The container of a proxy.
#[derive(Clone, Debug)]
pub struct ProxiedContainer {
    /// Its session.
    pub session: ContainerName,
    /// Its name for the user.
    pub name: String,
    /// The list of the configuration with the rules of its proxy.
    pub list: RuleList,
}

#[derive(Debug)]
struct Inner {
    file: ApprovalsFile,
    container: ProxiedContainer,
    /// The policy of the configuration.
    configured: EgressPolicy,
    /// How long a refused request waits for the user.
    wait: Duration,
    current: Mutex<CurrentPolicy>,
    /// Repetitions that are not yet in the file.
    repeated: Mutex<BTreeMap<String, Repeats>>,
    places: Semaphore,
}

#[derive(Debug)]
struct CurrentPolicy {
    /// Identifies the version of the file.
    version: Option<(u64, i64, i64)>,
    policy: Arc<EgressPolicy>,
}

#[derive(Debug)]
struct Repeats {
    written: Instant,
    more: u64,
}

impl ProxyApprovals {
    /// Those of a proxy with that file and policy.
    #[must_use]
    pub fn new(file: &ApprovalsFile, container: ProxiedContainer, configured: EgressPolicy, wait: Duration) -> Self {
        let current = CurrentPolicy { version: None, policy: Arc::new(configured.clone()) };
        Self(Arc::new(Inner {
            file: file.clone(),
            container,
            configured,
            wait,
            current: Mutex::new(current),
            repeated: Mutex::default(),
            places: Semaphore::new(MAX_WAITING),
        }))
    }

    /// Adds a rule that the agent requests, with its reason, and waits for the user. Returns whether it is allowed.
    ///
    /// # Errors
    /// `invalid_input` for a rule that is invalid, or that a terminal may show as another one; `newer_version`; errors of
    /// the file system.
    pub async fn request(&self, rule: &str, reason: &str) -> Result<bool, Failure> {
        EgressPolicy::parse(&[rule]).map_err(|err| Failure::from(err).detail("field", "rule"))?;
        // The user decides by what is shown: no letter may look like another one, and none may control the terminal.
        if !rule.bytes().all(|it| it.is_ascii_graphic() || it == b' ') {
            let hint = "write other names with `xn--`, and paths with `%`";
            return Err(Failure::invalid("rule", "it may have ASCII letters, digits and signs only").hint(hint));
        }
        let reason: String = reason.chars().map(|it| if is_deceptive(it) { '\u{fffd}' } else { it }).collect();
        let refused = Refused { rule, code: "requested", reason: Some(&reason) };
        Ok(self.0.decide(refused).await? != Decision::Refused)
    }
}

#[async_trait]
impl Approvals for ProxyApprovals {
    fn policy(&self) -> Arc<EgressPolicy> {
        self.0.policy()
    }

    async fn decide(&self, refused: &ProxyEvent) -> Decision {
        let Some(rule) = &refused.rule else { return Decision::Refused };
        let inner = &self.0;
        let event = Refused { rule, code: refused.code, reason: None };
        // Its file has it already; a flood must not write for each request.
        if !inner.is_to_be_written(rule) && inner.is_pending(rule) {
            inner.write_later(self, rule);
            return inner.until_decided(event).await;
        }
        inner.decide(event).await.unwrap_or_else(|err| {
            tracing::warn!("a refused request cannot be listed: {}", err.message);
            Decision::Refused
        })
    }
}

impl Inner {
    fn policy(&self) -> Arc<EgressPolicy> {
        let mut current = lock(&self.current);
        let version = match self.file.0.metadata() {
            Ok(meta) => Some((meta.ino(), meta.mtime(), meta.mtime_nsec())),
            Err(err) if err.kind() == io::ErrorKind::NotFound => None,
            Err(_) => Some((0, 0, 0)),
        };
        if version != current.version {
            let allowed = match self.file.read() {
                Ok(read) => read.unwrap_or_default().allowed,
                Err(err) => {
                    tracing::warn!("only the configuration allows requests: {}", err.message);
                    Vec::new()
                }
            };
            let rules: Vec<_> = allowed.iter().filter_map(|it| EgressPolicy::parse(&[it]).ok()).collect();
            let policy = rules.iter().fold(self.configured.clone(), |policy, rule| policy.with(rule));
            // Refusals change the file, too.
            let policy = if policy == *current.policy { current.policy.clone() } else { Arc::new(policy) };
            *current = CurrentPolicy { version, policy };
        }
        current.policy.clone()
    }

    /// Adds a refusal to the file, and waits for the decision.
    async fn decide(&self, refused: Refused<'_>) -> Result<Decision, Failure> {
        let (rule, now, wait) = (refused.rule, Timestamp::now(), self.wait);
        let place = self.places.try_acquire().ok().filter(|_| !wait.is_zero());
        let count = 1 + lock(&self.repeated).get_mut(rule).map_or(0, |it| std::mem::take(&mut it.more));
        let decided = |approvals: &mut ContainerApprovals| {
            let ProxiedContainer { session, name, list } = self.container.clone();
            (approvals.container, approvals.session, approvals.list) = (name, Some(session), Some(list));
            if approvals.allowed.iter().any(|it| it == rule) {
                return Some(Decision::Allowed);
            }
            if approvals.take_once(rule, now) {
                return Some(Decision::Once);
            }
            let request = approvals.add(refused, &self.file.0, count, now);
            if request.decision(now).is_none() && place.is_some() {
                request.waits_until = now.checked_add(wait).ok();
                return None;
            }
            Some(Decision::Refused)
        };
        if let Some(decision) = self.file.update(decided).await? {
            return Ok(decision);
        }
        drop(place);
        Ok(self.until_decided(refused).await)
    }

    /// Waits until the user has decided about a request in the file.
    async fn until_decided(&self, refused: Refused<'_>) -> Decision {
        let Ok(_place) = self.places.try_acquire() else { return Decision::Refused };
        let until = Instant::now() + self.wait;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            tokio::time::sleep(LOOKS.min(left)).await;
            match self.look(refused, left).await {
                Ok(None) => {}
                Ok(Some(decision)) => return decision,
                Err(err) => {
                    tracing::warn!("a waiting request is refused: {}", err.message);
                    return Decision::Refused;
                }
            }
        }
        Decision::Refused
    }

    /// The user's decision in the file, if there is one.
    async fn look(&self, refused: Refused<'_>, left: Duration) -> Result<Option<Decision>, Failure> {
        let (rule, now) = (refused.rule, Timestamp::now());
        let mut approvals = self.file.read()?.unwrap_or_default();
        if approvals.allowed.iter().any(|it| it == rule) {
            return Ok(Some(Decision::Allowed));
        }
        match approvals.request(rule).map(|it| it.decision(now)) {
            Some(Some(Decision::Once)) => {
                // Another request may have used it up, and this one waits on.
                Ok(self.file.update(|it| it.take_once(rule, now)).await?.then_some(Decision::Once))
            }
            Some(decision) => Ok(decision),
            None => {
                let add = |it: &mut ContainerApprovals| {
                    it.add(refused, &self.file.0, 0, now).waits_until = now.checked_add(left).ok();
                };
                self.file.update(add).await?;
                Ok(None)
            }
        }
    }

    /// Whether a request is in the file, and the user has not decided about it.
    fn is_pending(&self, rule: &str) -> bool {
        let read = self.file.read().ok().flatten();
        read.is_some_and(|mut approvals| approvals.request(rule).is_some_and(|it| it.is_pending()))
    }

    /// Whether a refusal is written at once: the first one, and then at most one each second.
    fn is_to_be_written(&self, rule: &str) -> bool {
        let mut repeated = lock(&self.repeated);
        repeated.retain(|_, it| it.more > 0 || it.written.elapsed() < WRITES);
        match repeated.get_mut(rule) {
            None => {
                repeated.insert(rule.to_owned(), Repeats { written: Instant::now(), more: 0 });
                true
            }
            Some(_) => false,
        }
    }

    /// Counts a repetition, which is written with others a second later.
    fn write_later(&self, own: &ProxyApprovals, rule: &str) {
        let mut repeated = lock(&self.repeated);
        let Some(repeats) = repeated.get_mut(rule) else { return };
        repeats.more += 1;
        if repeats.more > 1 {
            return;
        }
        let (own, rule) = (own.clone(), rule.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(WRITES).await;
            let more = lock(&own.0.repeated).remove(&rule).map_or(0, |it| it.more);
            let (file, now) = (&own.0.file, Timestamp::now());
            let written = file.update(|it| {
                if let Some(request) = it.request(&rule) {
                    (request.count, request.last) = (request.count.saturating_add(more), now);
                }
            });
            if let Err(err) = written.await {
                tracing::warn!("repeated refusals cannot be counted: {}", err.message);
            }
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::approvals_file::{Choice, MAX_REQUESTS, RefusedRequest};
    use super::*;

    const RULE: &str = "api.example.com";

    struct Trial {
        dir: tempfile::TempDir,
        approvals: ProxyApprovals,
    }

    impl Trial {
        fn new(wait: Duration) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let approvals = Self::process(&dir, wait);
            Self { dir, approvals }
        }

        fn process(dir: &tempfile::TempDir, wait: Duration) -> ProxyApprovals {
            let file = ApprovalsFile(dir.path().join("approvals.json"));
            let configured = EgressPolicy::parse(&["pypi"]).unwrap();
            let session = ContainerName::parse("default").unwrap();
            let container = ProxiedContainer { session, name: "web".to_owned(), list: RuleList::Security };
            ProxyApprovals::new(&file, container, configured, wait)
        }

        async fn refused(&self) -> Decision {
            Self::refused_by(self.approvals.clone()).await
        }

        async fn refused_by(approvals: ProxyApprovals) -> Decision {
            let (container, target) = ("key".to_owned(), Some("api.example.com:443".to_owned()));
            let rule = Some(RULE.to_owned());
            let event = ProxyEvent { code: "host_not_allowed", container, target, rule, policy_generation: 0 };
            approvals.decide(&event).await
        }

        fn read(&self) -> ContainerApprovals {
            self.approvals.0.file.read().unwrap().unwrap()
        }

        async fn until_pending(&self) {
            let read = || self.approvals.0.file.read().unwrap();
            while !read().is_some_and(|it| it.requests.first().is_some_and(RefusedRequest::is_pending)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }

        async fn user(&self, choice: Choice) {
            self.approvals.0.file.decide(&self.read().requests[0].id, choice).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_decision_holds_for_one_request_or_as_long_as_the_container_exists() {
        let trial = Trial::new(Duration::ZERO);
        assert_eq!(trial.refused().await, Decision::Refused);
        trial.user(Choice::Once).await;
        assert_eq!(trial.refused().await, Decision::Once);
        assert_eq!(trial.refused().await, Decision::Refused, "it is used up");
        let before = trial.approvals.policy();
        assert!(Arc::ptr_eq(&before, &trial.approvals.policy()), "refusals do not change the policy");
        trial.user(Choice::Session).await;
        let allowed = trial.approvals.policy();
        assert_eq!(*allowed, EgressPolicy::parse(&["pypi", RULE]).unwrap());
        assert_eq!(*Trial::process(&trial.dir, Duration::ZERO).policy(), *allowed, "another process has it, too");
        assert!(trial.approvals.0.file.revoke(RULE).await.unwrap());
        assert_eq!(trial.approvals.policy(), before);
        assert_eq!(trial.refused().await, Decision::Refused);
        trial.user(Choice::Deny).await;
        assert_eq!(trial.refused().await, Decision::Refused);
        assert!(!trial.read().requests[0].is_pending());
    }

    #[tokio::test]
    async fn a_waiting_request_is_decided_by_another_process_and_a_flood_is_one_entry() {
        let trial = Trial::new(Duration::from_secs(30));
        let user = async {
            while trial.approvals.0.file.read().unwrap().is_none_or(|it| it.requests[0].count < 40) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let read = trial.read();
            assert!(read.requests.len() == 1 && read.requests[0].waits_until.is_some(), "{read:?}");
            let other = Trial::process(&trial.dir, Duration::ZERO);
            other.0.file.decide(&read.requests[0].id, Choice::Session).await.unwrap();
        };
        let flood: tokio::task::JoinSet<_> = (0..40).map(|_| Trial::refused_by(trial.approvals.clone())).collect();
        let (decisions, ()) = tokio::join!(flood.join_all(), user);
        let allowed = decisions.iter().filter(|it| **it == Decision::Allowed).count();
        assert_eq!(allowed, MAX_WAITING, "the others did not wait: {decisions:?}");
    }

    #[tokio::test]
    async fn a_permission_for_one_request_leaves_others_waiting_and_listed() {
        let trial = Trial::new(Duration::from_secs(30));
        let both: tokio::task::JoinSet<_> = (0..2).map(|_| Trial::refused_by(trial.approvals.clone())).collect();
        let requests = async {
            let both = both.join_all().await;
            // A repetition within a second of the last one is listed, too.
            (both, trial.refused().await)
        };
        let user = async {
            for _ in 0..3 {
                trial.until_pending().await;
                trial.user(Choice::Once).await;
            }
        };
        let (decisions, ()) = tokio::join!(requests, user);
        assert_eq!(decisions, (vec![Decision::Once; 2], Decision::Once));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_decision_in_time_a_request_is_refused() {
        let trial = Trial::new(Duration::from_millis(300));
        assert_eq!(trial.refused().await, Decision::Refused);
        // The proxy's process ends while it waits: the entry is for the next request.
        assert!(tokio::time::timeout(Duration::from_millis(100), trial.refused()).await.is_err());
        trial.user(Choice::Once).await;
        assert_eq!(trial.refused().await, Decision::Once);
    }

    #[tokio::test]
    async fn an_agent_requests_only_what_the_user_can_read() {
        let trial = Trial::new(Duration::ZERO);
        for odd in ["*", "GET a.example.com/\u{1b}[2K", "GET a.example.com/\u{202e}x", "ex\u{430}mple.com"] {
            let refused = trial.approvals.request(odd, "x").await.unwrap_err();
            assert_eq!(refused.code, crate::failure::Code::InvalidInput, "{odd:?}");
            assert!(refused.hint.is_some(), "{odd:?}");
        }
        assert!(trial.approvals.0.file.read().unwrap().is_none());
        assert!(!trial.approvals.request("GET a.example.com/x", "to\nread\u{1b}[31m").await.unwrap());
        assert_eq!(trial.read().requests[0].reason.as_deref(), Some("to\u{fffd}read\u{fffd}[31m"));
    }

    #[tokio::test]
    async fn what_a_newer_version_wrote_allows_nothing_and_stays() {
        let trial = Trial::new(Duration::ZERO);
        trial.refused().await;
        trial.user(Choice::Session).await;
        let file = &trial.approvals.0.file.0;
        let newer = br#"{"schema":99,"container":"web","list":null,"allowed":["evil.example.com"]}"#;
        std::fs::write(file, newer).unwrap();
        assert_eq!(*trial.approvals.policy(), EgressPolicy::parse(&["pypi"]).unwrap());
        assert_eq!(trial.refused().await, Decision::Refused);
        assert_eq!(std::fs::read(file).unwrap(), newer);
    }

    #[tokio::test]
    async fn a_container_cannot_fill_the_file() {
        let trial = Trial::new(Duration::ZERO);
        for number in 0..MAX_REQUESTS + 5 {
            let rule = Some(format!("{number}.example.com"));
            let (container, code) = (String::new(), "host_not_allowed");
            trial.approvals.decide(&ProxyEvent { code, container, target: None, rule, policy_generation: 0 }).await;
        }
        let rules: Vec<_> = trial.read().requests.into_iter().map(|it| it.rule).collect();
        assert_eq!((rules.len(), rules[0].as_str()), (MAX_REQUESTS, "5.example.com"));
    }
}

//! Requests that the policy refuses, and the user allows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use coracle_proxy::policy::{EgressPolicy, Grants};
use coracle_proxy::{Approvals, Decision, ProxyEvent, Timeouts};

use crate::bench::{Bench, Server, response};

/// A user with decisions. [`Decision::Allowed`] adds the rule to the policy.
struct User {
    decisions: Mutex<VecDeque<Decision>>,
    policy: Mutex<Arc<EgressPolicy>>,
    rules: Mutex<Vec<String>>,
}

#[async_trait]
impl Approvals for User {
    fn policy(&self) -> Arc<EgressPolicy> {
        self.policy.lock().unwrap().clone()
    }

    async fn decide(&self, refused: &ProxyEvent) -> Decision {
        let rule = refused.rule.clone().unwrap();
        let decision = self.decisions.lock().unwrap().pop_front().unwrap_or(Decision::Refused);
        if decision == Decision::Allowed {
            let mut policy = self.policy.lock().unwrap();
            *policy = Arc::new(policy.with(&EgressPolicy::parse(&[&rule]).unwrap()));
        }
        self.rules.lock().unwrap().push(rule);
        decision
    }
}

async fn bench(rules: &[String], decisions: &[Decision]) -> (Bench, Arc<User>) {
    let policy = Arc::new(EgressPolicy::parse(rules).unwrap());
    let user = Arc::new(User {
        decisions: Mutex::new(decisions.iter().copied().collect()),
        policy: Mutex::new(policy.clone()),
        rules: Mutex::default(),
    });
    let approvals = user.clone();
    let bench = Bench::with(Timeouts::default(), |it| it.approvals = Some(approvals));
    bench.proxy.grant(Some(Grants { egress: Some(policy), ..bench.grants() }));
    (bench, user)
}

/// The status lines of several requests on one connection.
async fn statuses(bench: &Bench, requests: &[String]) -> Vec<u16> {
    let last = requests.len() - 1;
    let closes = |at: usize| if at == last { "Connection: close\r\n" } else { "" };
    let sent: String =
        requests.iter().enumerate().map(|(at, it)| format!("{it} HTTP/1.1\r\nHost: x\r\n{}\r\n", closes(at))).collect();
    let answer = bench.raw("egress.sock", format!("CORACLE/1 {}\n{sent}", bench.net).as_bytes()).await;
    let answer = String::from_utf8(answer).unwrap();
    let statuses = answer.split("HTTP/1.1 ").skip(1);
    statuses.map(|it| it[..3].parse().unwrap()).collect()
}

#[tokio::test]
async fn one_request_is_allowed_once_and_a_rule_for_good() {
    let server = Server::start(|_| response(200, "text/plain", "there")).await;
    let get = format!("GET http://127.0.0.1:{}/", server.port);
    let (bench, user) = bench(&[], &[Decision::Once, Decision::Refused, Decision::Allowed]).await;
    // The permission for a request is not one for its connection.
    assert_eq!(statuses(&bench, &[get.clone(), get.clone()]).await, [200, 403]);
    assert_eq!(bench.codes(), ["ip_not_allowed"], "an allowed request is not reported");
    assert_eq!(statuses(&bench, &[get.clone(), get.clone()]).await, [200, 200]);
    assert_eq!(*user.rules.lock().unwrap(), vec![format!("ip:127.0.0.1:{}", server.port); 3]);
    // What the user takes back is refused.
    *user.policy.lock().unwrap() = Arc::default();
    assert_eq!(statuses(&bench, &[get]).await, [403]);
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_tunnel_is_allowed_and_ends_with_its_permission() {
    let server = Server::start(|_| response(200, "text/plain", "there")).await;
    let (bench, user) = bench(&[], &[Decision::Once]).await;
    let target = format!("127.0.0.1:{}", server.port);
    assert!(bench.tunnel(&target).await.1.starts_with("HTTP/1.1 200 "));
    assert!(bench.tunnel(&target).await.1.starts_with("HTTP/1.1 403 "));
    assert_eq!(user.rules.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn what_no_rule_can_allow_is_not_for_the_user() {
    let server = Server::start(|_| response(200, "text/plain", "there")).await;
    let port = server.port;
    let rules =
        [format!("GET site.example.com:{port}/a/**"), format!("ip:127.0.0.1:{port}"), "private.example.com".into()];
    let (bench, user) = bench(&rules, &[Decision::Allowed; 9]).await;
    for (name, address) in [("site.example.com", "127.0.0.1"), ("private.example.com", "10.0.0.1")] {
        bench.names.0.lock().unwrap().insert(name.to_owned(), vec![address.parse().unwrap()]);
    }
    for (request, status) in [
        // A program could suggest a pattern, or a path that servers read in different ways.
        (format!("GET http://site.example.com:{port}/**"), 403),
        (format!("GET http://site.example.com:{port}/a/../b"), 403),
        ("CONNECT private.example.com:443".to_owned(), 403),
        ("CONNECT coracle-self-test.invalid:443".to_owned(), 403),
    ] {
        assert_eq!(statuses(&bench, std::slice::from_ref(&request)).await, [status], "{request}");
    }
    assert!(user.rules.lock().unwrap().is_empty());
    assert_eq!(statuses(&bench, &[format!("GET http://site.example.com:{port}/b")]).await, [200]);
    assert_eq!(*user.rules.lock().unwrap(), [format!("GET site.example.com:{port}/b")]);
}

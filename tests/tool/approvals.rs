//! Requests that a proxy refuses, and the user's decisions: by command, and by the form of a client.

use std::time::Duration;

use serde_json::{Value, json};

use super::mcp::Client;
use super::person::Person;
use super::proxied::{Served, fetching};
use super::{Tool, eventually};
use crate::engines::IMAGE;

/// The container of a test, and what it fetches.
pub(super) struct Proxied<'a> {
    tool: &'a Tool<'a>,
    pub(super) name: String,
    pub(super) fetch: String,
}

impl<'a> Proxied<'a> {
    pub(super) async fn create(tool: &'a Tool<'a>, url: &str) -> Self {
        let create = json!({ "operation": "create", "image": IMAGE, "network": "proxy", "mount_cwd": false });
        let made = tool.call(create).await;
        assert_eq!(made["success"], true, "{made:#}");
        Self { tool, name: made["container"].as_str().unwrap().to_owned(), fetch: fetching(url) }
    }

    pub(super) async fn destroy(&self) {
        let destroyed = self.tool.call(json!({ "operation": "destroy", "container": self.name })).await;
        assert_eq!(destroyed["success"], true, "{destroyed:#}");
    }

    async fn fetched(&self) -> Value {
        self.tool.call(json!({ "operation": "exec", "container": self.name, "command": self.fetch })).await
    }

    pub(super) async fn is_allowed(&self) -> bool {
        self.fetched().await["stdout"].as_str().unwrap().ends_with("there")
    }
}

/// The answer of a command of the user.
async fn user(tool: &Tool<'_>, words: &[&str]) -> Value {
    let output = tool.run(words.iter().chain(&["--json"]), b"").await;
    serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{words:?}: {err}: {output:?}"))
}

async fn list(tool: &Tool<'_>) -> Value {
    user(tool, &["approvals", "list"]).await
}

/// Waits for a request that is in a state, and returns its id.
pub(super) async fn request(tool: &Tool<'_>, state: &str) -> String {
    let listed =
        async || list(tool).await["requests"].as_array().unwrap().iter().find(|it| it["state"] == state).cloned();
    eventually("the request is listed", Duration::from_secs(30), async || listed().await.is_some()).await;
    listed().await.unwrap()["id"].as_str().unwrap().to_owned()
}

pub(super) fn config(wait: u32) -> String {
    format!(
        "[security]\nnetwork = \"proxy\"\n[security.egress]\nallow = [\n    \"pypi\", # mine\n]\napproval_timeout = {wait}\n"
    )
}

#[tokio::test]
async fn a_refused_request_is_allowed_once_for_a_container_or_always() {
    let served = Served::here();
    let rule = served.rule();
    let person = Person::new(config(0));
    person
        .on_real_engines(async |tool| {
            let container = Proxied::create(tool, &served.url()).await;
            let refused = container.fetched().await;
            let warning = refused["warnings"].as_array().unwrap().iter().find(|it| it["code"] == "request_refused");
            assert!(warning.unwrap()["message"].as_str().unwrap().contains("`coracle approvals`"), "{refused:#}");
            let id = request(tool, "pending").await;
            let row = &list(tool).await["requests"][0];
            assert_eq!(
                (&row["rule"], &row["container"], &row["code"]),
                (&json!(rule), &json!(container.name), &json!("ip_not_allowed"))
            );

            assert_eq!(user(tool, &["approvals", "allow", &id, "once"]).await["decision"], "once");
            assert!(container.is_allowed().await && !container.is_allowed().await, "one request");
            user(tool, &["approvals", "allow", &id, "session"]).await;
            assert!(container.is_allowed().await && container.is_allowed().await);
            assert_eq!(list(tool).await["allowed"], json!([{ "container": container.name, "rule": rule }]));
            user(tool, &["approvals", "revoke", &rule]).await;
            assert!(!container.is_allowed().await);
            let unknown = user(tool, &["approvals", "revoke", &rule]).await;
            assert_eq!(unknown["code"], "not_found", "{unknown:#}");

            // An agent requests a rule, and cannot allow it.
            let request_rule = json!({ "operation": "network_request", "container": container.name, "rule": "docs.example.com",
                "reason": "To read the documentation\u{1b}[31m" });
            assert_eq!(tool.call(request_rule).await["state"], "pending");
            let row =
                list(tool).await["requests"].as_array().unwrap().iter().find(|it| it["code"] == "requested").cloned();
            assert_eq!(row.unwrap()["reason"], "To read the documentation\u{fffd}[31m");
            let own = tool.call(json!({ "operation": "approvals allow", "id": id, "scope": "session" })).await;
            assert_eq!(own["code"], "unknown_operation", "{own:#}");
            let odd =
                json!({ "operation": "network_request", "container": container.name, "rule": "*", "reason": "x" });
            assert_eq!(tool.call(odd).await["code"], "invalid_input");

            let always = user(tool, &["approvals", "allow", &request(tool, "pending").await, "always"]).await;
            let diff = always["written"]["diff"].as_str().unwrap();
            assert!(diff.contains(&format!("\n+    \"{}\",\n ]\n", always["rule"].as_str().unwrap())), "{diff}");
            let text = std::fs::read_to_string(always["written"]["file"].as_str().unwrap()).unwrap();
            assert!(text.contains("\"pypi\", # mine"), "{text}");

            container.destroy().await;
            let left = list(tool).await;
            assert_eq!((&left["requests"], &left["allowed"]), (&json!([]), &json!([])), "it ended with the container");
            let again = Proxied::create(tool, &served.url()).await;
            assert_eq!(again.is_allowed().await, always["rule"] == rule, "the configuration holds for new ones");
            again.destroy().await;
        })
        .await;
}

/// A form of the protocol answers with one choice; the server's messages until the answer are returned.
async fn with_form(client: &mut Client, answer: Value) -> Value {
    loop {
        let message = client.message().await;
        if message["method"] == "elicitation/create" {
            let text = message["params"]["message"].as_str().unwrap();
            assert!(text.contains("The container `") && text.contains("ip:"), "{text}");
            client.send(json!({ "jsonrpc": "2.0", "id": message["id"], "result": answer })).await;
        } else if message.get("id").is_some() {
            return message["result"]["structuredContent"].clone();
        }
    }
}

#[tokio::test]
async fn a_request_waits_for_the_user() {
    let served = Served::here();
    let person = Person::new(config(60));
    person
        .on_real_engines(async |tool| {
            let container = Proxied::create(tool, &served.url()).await;
            // At the command line of another process.
            let decides = async {
                let id = request(tool, "waiting").await;
                user(tool, &["approvals", "allow", &id, "once"]).await
            };
            let (fetched, _) = tokio::join!(container.is_allowed(), decides);
            assert!(fetched);
            let denies = async {
                let id = request(tool, "waiting").await;
                user(tool, &["approvals", "deny", &id]).await
            };
            let (fetched, _) = tokio::join!(container.is_allowed(), denies);
            assert!(!fetched);
            // A denied request does not wait again.
            assert!(!container.is_allowed().await);
            let id = request(tool, "denied").await;
            user(tool, &["approvals", "allow", &id, "session"]).await;
            user(tool, &["approvals", "revoke", &served.rule()]).await;

            // By the form of a client, in the server of an agent.
            let mut server = tool.command(["--session", "default", "mcp", "--toolsets", "classic"]);
            let (mut client, _) = Client::with_capabilities(&mut server, &json!({ "elicitation": {} })).await;
            let exec = json!({ "operation": "exec", "container": container.name, "command": container.fetch });
            for (answer, is_allowed) in [
                (json!({ "action": "accept", "content": { "decision": "once" } }), true),
                (json!({ "action": "accept", "content": { "decision": "session" } }), true),
                (json!({}), true),
            ] {
                client.call(1, &exec).await;
                let ran = with_form(&mut client, answer).await;
                assert_eq!(ran["stdout"].as_str().unwrap().ends_with("there"), is_allowed, "{ran:#}");
            }
            user(tool, &["approvals", "revoke", &served.rule()]).await;
            client.call(1, &exec).await;
            let ran = with_form(&mut client, json!({ "action": "accept", "content": { "decision": "deny" } })).await;
            assert!(!ran["stdout"].as_str().unwrap().ends_with("there"), "{ran:#}");
            client.end().await;
            container.destroy().await;
        })
        .await;
}

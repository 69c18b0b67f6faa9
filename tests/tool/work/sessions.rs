//! Sessions and their containers.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Agent, Person, configured, with_agent, with_real_agent};
use crate::engines::{Lack, ran};
use crate::servers::mcp_load::{self, At};
use crate::tool::Tool;
use crate::tool::mcp_http::Server;

#[tokio::test]
async fn w01_nothing_is_created_before_it_is_needed_and_then_an_isolated_container() {
    with_real_agent("", async |agent| {
        if agent.tool.case.lacks(Lack::EnforcedLimits) {
            return;
        }
        assert_eq!(agent.container("workspace"), None);
        agent.value("ls", json!({})).await;
        let id = agent.container("workspace").unwrap();
        let (_, inspected) = agent.tool.engine(&["container", "inspect", &id]).await;
        let inspected: Value = serde_json::from_str(&inspected).unwrap();
        let host = &inspected[0]["HostConfig"];
        assert_eq!((&host["NetworkMode"], &host["ReadonlyRootfs"]), (&"none".into(), &true.into()), "{host:#}");
        assert_eq!((&host["Memory"], &host["MemorySwap"]), (&(1u64 << 30).into(), &(1u64 << 30).into()));
        assert_eq!(host["PidsLimit"], 256);
        let who = agent.sh("id -u; id -g; grep -E '^(CapEff|NoNewPrivs)' /proc/self/status; touch /etc/x 2>&1; touch /tmp/x && echo tmp").await;
        let lines: Vec<&str> = who["stdout"].as_str().unwrap().lines().collect();
        assert_eq!(&lines[..4], ["65534", "65534", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"], "{who:#}");
        assert!(lines[4].contains("Read-only") && lines[5] == "tmp", "{who:#}");
        ran("w01", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w02_first_calls_that_begin_together_make_one_container() {
    with_agent("", async |agent| {
        let other = Agent::new(agent.tool, "agent-1");
        let calls = (0..32).map(|it| {
            let agent = if it % 2 == 0 { agent } else { &other };
            async move { agent.value("ls", json!({})).await }
        });
        futures_util::future::join_all(calls).await;
        let listed = agent.tool.records().len();
        assert_eq!(listed, 1);
        ran("w02", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w05_a_killed_container_is_replaced_with_its_files_and_reported_once() {
    with_real_agent("", async |agent| {
        agent.value("write_file", json!({ "file_path": "a", "content": "kept" })).await;
        assert!(agent.tool.engine(&["kill", &agent.container("workspace").unwrap()]).await.0);
        let read = agent.call("read_file", json!({ "file_path": "a" })).await;
        assert_eq!(read["value"]["content"], "   1 | kept", "{read:#}");
        assert_eq!(read["workspace"]["generation"], 2);
        let warning = &read["warnings"][0];
        assert_eq!((&warning["code"], &warning["details"]["reason"]), (&"workspace_recreated".into(), &"crashed".into()), "{read:#}");
        assert_eq!(
            warning["message"],
            "The container was replaced (crashed). Running processes and files outside /workspace are gone; /workspace is intact."
        );
        let again = agent.call("read_file", json!({ "file_path": "a" })).await;
        assert_eq!(again["warnings"], json!([]), "{again:#}");
        ran("w05", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w06_a_command_whose_container_dies_is_not_run_again() {
    with_real_agent("", async |agent| {
        agent.value("ls", json!({})).await;
        let id = agent.container("workspace").unwrap();
        let long = agent.call("shell_execute", json!({ "command": ["sh", "-c", "echo x >>count; sleep 30"] }));
        let kill = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(agent.tool.engine(&["kill", &id]).await.0);
        };
        let (lost, ()) = tokio::join!(long, kill);
        assert_eq!(
            (&lost["code"], &lost["details"]["may_have_run"]),
            (&"workspace_lost".into(), &true.into()),
            "{lost:#}"
        );
        assert_eq!(agent.value("read_file", json!({ "file_path": "count" })).await["content"], "   1 | x");
        ran("w06", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w07_a_paused_container_is_resumed() {
    with_real_agent("", async |agent| {
        if agent.tool.case.lacks(Lack::Pause) {
            return;
        }
        agent.value("write_file", json!({ "file_path": "a", "content": "kept" })).await;
        let id = agent.container("workspace").unwrap();
        assert!(agent.tool.engine(&["pause", &id]).await.0);
        let read = agent.call("read_file", json!({ "file_path": "a" })).await;
        assert_eq!((&read["success"], &read["workspace"]["generation"]), (&true.into(), &1.into()), "{read:#}");
        assert_eq!(agent.container("workspace").unwrap(), id);
        ran("w07", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w44_sessions_do_not_hold_each_other_up() {
    with_agent("", async |agent| {
        let others: Vec<Agent<'_>> = (2..=4).map(|it| Agent::new(agent.tool, &format!("agent-{it}"))).collect();
        let all = others.iter().chain([agent]);
        let all = all.flat_map(|agent| (0..3).map(move |index| (agent, index)));
        futures_util::future::join_all(all.map(|(agent, index)| mixed(agent, index))).await;
        for other in &others {
            assert_eq!(other.value("ls", json!({})).await.as_array().unwrap().len(), 30);
            other.end().await;
        }
        ran("w44", agent.engine());
    })
    .await;
}

/// Memory limit of a server while eight sessions are at work, in MiB. Without optimisation only a growth with the
/// number of calls is an error.
const MOST_MIB: u64 = if cfg!(debug_assertions) { 120 } else { 60 };

#[tokio::test]
async fn w44_a_server_of_eight_sessions_that_make_200_calls_each_stays_small() {
    let person = Person::new(configured(""));
    let check = async |tool: &Tool<'_>| {
        let mut server = Server::start(tool, &["--toolsets", "workspace"]).await;
        let at = At { port: server.port, token: server.token.clone(), pid: server.child.id().unwrap() };
        let memory = tokio::task::spawn_blocking(move || mcp_load::work(&at, 8, 200)).await.unwrap();
        server.stop().await;
        let mib = |kib: u64| kib as f64 / 1024.0;
        eprintln!("coracle mcp on {}: {:.1} MiB, at most {:.1}", tool.case.engine(), mib(memory.now), mib(memory.most));
        assert!(memory.most < MOST_MIB << 10, "{memory:?}");
        let of_sessions = std::fs::read_dir(tool.state().join("sessions")).unwrap().flatten();
        let logs = of_sessions.filter_map(|it| std::fs::read_to_string(it.path().join("events.jsonl")).ok());
        let made = logs.map(|it| it.lines().filter(|it| it.contains(r#""event":"created""#)).count());
        assert_eq!(made.collect::<Vec<_>>(), [1; 8], "one container a session");
        ran("w44", tool.case.engine());
    };
    person.on_real_engines(check).await;
}

#[tokio::test]
async fn a_session_container_is_private_and_removed_after_the_session() {
    with_real_agent("", async |agent| {
        agent.value("write_file", json!({ "file_path": "a", "content": "work" })).await;
        let id = agent.container("workspace").unwrap();
        let status = agent.tool.call(json!({ "operation": "status", "container": id })).await;
        assert_eq!(status["code"], "not_managed", "{status:#}");
        let listed = agent.tool.call(json!({ "operation": "list" })).await;
        assert_eq!(listed["count"].as_u64().unwrap_or_default(), 0, "{listed:#}");
        let ended = agent.end().await;
        assert_eq!((&ended["success"], &ended["ended"]), (&true.into(), &json!(["workspace"])), "{ended:#?}");
        assert_eq!(ended["saved"].as_array().unwrap().len(), 1, "{ended:#?}");
        assert!(!agent.tool.engine(&["inspect", &id]).await.0);
        assert_eq!(agent.code("ls", json!({})).await, "session_ended");
    })
    .await;
}

/// Calls of every kind, each of which has to see what the last one did.
async fn mixed(agent: &Agent<'_>, index: usize) {
    for turn in 0..10 {
        let name = format!("f{index}-{turn}");
        agent.value("write_file", json!({ "file_path": name, "content": name })).await;
        let read = agent.value("read_file", json!({ "file_path": name })).await;
        assert_eq!(read["content"], format!("   1 | {name}"));
        assert_eq!(agent.sh(&format!("cat {name}")).await["stdout"], name);
        let found = agent.value("grep", json!({ "pattern": name, "path": name })).await;
        assert_eq!(found.as_array().unwrap().len(), 1);
    }
}

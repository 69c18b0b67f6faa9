//! Snippets that are ended, and containers that are lost.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::super::{Agent, with_real_agent};
use super::{SNIPPETS, make_snippets, run, with_snippets};
use crate::engines::{IMAGE, Lack, ran};
use crate::tool::mcp::Client;

#[tokio::test]
async fn r07_r08_a_snippet_that_takes_too_much_is_ended_with_what_it_printed() {
    with_snippets(false, async |agent| {
        match agent.tool.case.lacks(Lack::EnforcedLimits) {
            true => assert_eq!(run(agent, "console.log(1)", json!({})).await["output"], "1\n"),
            false => r07_too_much_memory_is_reported_with_the_limit(agent).await,
        }
        r08_too_much_time_costs_the_container(agent).await;
    })
    .await;
}

async fn r07_too_much_memory_is_reported_with_the_limit(agent: &Agent<'_>) {
    let eaten = run(agent, "x = bytearray(1 << 30); print(len(x))", json!({ "language": "python" })).await;
    assert_eq!(
        (&eaten["success"], &eaten["oom"], &eaten["code"]),
        (&false.into(), &true.into(), &"out_of_memory".into()),
        "{eaten:#}"
    );
    assert_eq!(eaten["error"], "Execution exceeded the memory limit of 512 MiB.");
    ran("r07", agent.engine());
}

async fn r08_too_much_time_costs_the_container(agent: &Agent<'_>) {
    let before = agent.container("run").unwrap();
    let begun = Instant::now();
    let endless = run(agent, "console.log('on'); while (true) {}", json!({ "timeout_ms": 1000 })).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(
        (&endless["timedOut"], &endless["output"], &endless["exitCode"]),
        (&true.into(), &"on\n".into(), &124.into()),
        "{endless:#}"
    );
    assert_eq!(endless["error"], "Execution timed out after 1000 ms.");
    assert!(!agent.tool.engine(&["inspect", &before]).await.0, "its container is gone");
    let next = run(agent, "console.log(2)", json!({})).await;
    assert_eq!(
        (&next["output"], &next["containerRestarted"], &next["generation"]),
        (&"2\n".into(), &true.into(), &2.into()),
        "{next:#}"
    );
    ran("r08", agent.engine());
}

#[tokio::test]
async fn r08_the_container_stays_if_configured_and_its_processes_are_ended() {
    make_snippets().await;
    let config = format!("[run_code]\nimage = \"{SNIPPETS}\"\ntimeout_action = \"tree\"\n");
    with_real_agent(&config, async |agent| {
        let code = "setsid sleep 600 & echo on; while :; do :; done";
        let endless = run(agent, code, json!({ "language": "bash", "timeout": "500ms" })).await;
        assert_eq!((&endless["timedOut"], &endless["output"]), (&true.into(), &"on\n".into()), "{endless:#}");
        let container = agent.container("run").unwrap();
        let code = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 600'";
        let next = run(agent, code, json!({ "language": "bash" })).await;
        assert_eq!((&next["output"], &next["containerRestarted"]), (&"0\n".into(), &false.into()), "{next:#}");
        assert_eq!(agent.container("run").unwrap(), container);
    })
    .await;
}

#[tokio::test]
async fn r16_r17_r18_a_lost_container_is_replaced_and_nothing_runs_twice() {
    with_snippets(false, async |agent| {
        run(agent, "console.log(0)", json!({})).await;
        agent.tool.engine(&["rm", "-f", &agent.container("run").unwrap()]).await;
        let next = run(agent, "console.log(1)", json!({})).await;
        assert_eq!((&next["output"], &next["generation"]), (&"1\n".into(), &2.into()), "{next:#}");
        assert_eq!(next["warnings"][0]["details"]["reason"], "vanished", "{next:#}");
        ran("r16", agent.engine());
        r17_a_snippet_whose_container_dies_is_not_run_again(agent).await;
        r18_runs_at_once_do_not_see_each_other(agent).await;
    })
    .await;
}

async fn r17_a_snippet_whose_container_dies_is_not_run_again(agent: &Agent<'_>) {
    let long = run(agent, "echo x >>/packages/count; sleep 30", json!({ "language": "bash" }));
    let kill = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(agent.tool.engine(&["kill", &agent.container("run").unwrap()]).await.0);
    };
    let (lost, ()) = tokio::join!(long, kill);
    assert_eq!((&lost["code"], &lost["details"]["may_have_run"]), (&"workspace_lost".into(), &true.into()), "{lost:#}");
    assert_eq!(run(agent, "cat /packages/count", json!({ "language": "bash" })).await["output"], "x\n");
    ran("r17", agent.engine());
}

async fn r18_runs_at_once_do_not_see_each_other(agent: &Agent<'_>) {
    let nonces: Vec<String> = (0..20).map(|it| format!("nonce-{it}")).collect();
    let codes: Vec<String> = nonces.iter().map(|it| format!("echo {it}; sleep 600 & disown")).collect();
    let all =
        futures_util::future::join_all(codes.iter().map(|it| run(agent, it, json!({ "language": "bash" })))).await;
    for (nonce, ran) in nonces.iter().zip(&all) {
        assert_eq!(ran["output"], format!("{nonce}\n"), "{ran:#}");
    }
    let left = run(
        agent,
        "ps ax 2>/dev/null | grep -c '[s]leep 600'; ls /proc | grep -cE '^[0-9]+$'",
        json!({ "language": "bash" }),
    )
    .await;
    assert!(left["output"].as_str().unwrap().starts_with('0'), "{left:#}");
    ran("r18", agent.engine());
}

#[tokio::test]
async fn r15_the_container_of_snippets_ends_with_the_client_and_with_the_server() {
    with_real_agent(&format!("[run_code]\nimage = \"{IMAGE}\"\n"), async |agent| {
        let tool = agent.tool;
        let records = || -> BTreeSet<PathBuf> {
            let sessions = std::fs::read_dir(tool.state().join("sessions")).into_iter().flatten();
            let files = sessions.map(|session| session.unwrap().path().join("run.json"));
            files.filter(|file| file.exists()).collect()
        };
        for signal in [None, Some(Signal::TERM), Some(Signal::HUP)] {
            let others = records();
            // Without a name the session ends with its server.
            let mut client = Client::start(tool.command(["mcp"]).stderr(std::process::Stdio::null())).await;
            let params = json!({ "name": "run_code", "arguments": { "code": "1", "language": "bash" } });
            client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await;
            let answer = client.answer().await["result"]["structuredContent"].take();
            assert_eq!(
                (&answer["code"], &answer["generation"]),
                (&"language_unavailable".into(), &1.into()),
                "{answer:#}"
            );
            let file = records().difference(&others).next().unwrap().clone();
            let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            let (container, volume) = (record["name"].as_str().unwrap(), record["volume"].as_str().unwrap());
            assert!(tool.engine(&["container", "inspect", container]).await.0);
            let begun = Instant::now();
            match signal.zip(client.child.id().and_then(|it| Pid::from_raw(it.cast_signed()))) {
                Some((signal, pid)) => kill_process(pid, signal).unwrap(),
                None => drop(client.stdin),
            }
            client.child.wait().await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
            assert!(!tool.engine(&["container", "inspect", container]).await.0, "{signal:?}: the container stays");
            assert!(!tool.engine(&["volume", "inspect", volume]).await.0, "{signal:?}: the volume stays");
            assert!(!file.exists(), "{signal:?}: the record stays");
        }
        ran("r15", agent.engine());
    })
    .await;
}

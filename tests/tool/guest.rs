//! Features of commands with a guest: retained output, counted leftovers, signals, secrets, streamed input. And a
//! container without a guest.

use std::process::Stdio;
use std::time::{Duration, Instant};

use coracle_types::EngineKind;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::person::Person;
use super::{with_engine, with_tool};
use crate::engines::{WITHOUT_WAITING, ran};

const PROCESSES: &str = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '";

#[tokio::test]
async fn s58_at_a_limit_a_command_is_ended_or_continues() {
    with_tool("", async |tool| {
        let name = tool.created(json!({ "workdir": "/tmp" })).await;
        let exec = async |command: &str, more: serde_json::Value| {
            let mut call = json!({ "operation": "exec", "container": name, "command": command });
            super::merge(call.as_object_mut().unwrap(), more);
            tool.call(call).await
        };
        let answer = exec("for i in 1 2 3 4; do echo $i; sleep 0.5; done", json!({ "silence_timeout": 1 })).await;
        assert_eq!((&answer["timed_out"], &answer["stdout"]), (&false.into(), &"1\n2\n3\n4\n".into()));
        let answer = exec("echo once; sleep 60", json!({ "silence_timeout": 1 })).await;
        assert_eq!((&answer["timeout_kind"], &answer["stdout"]), (&"silence".into(), &"once\n".into()));

        let retained = exec("echo once; sleep 2; echo twice", json!({ "timeout": 0.5, "on_timeout": "keep" })).await;
        assert_eq!((&retained["running"], &retained["exit_code"]), (&true.into(), &json!(null)), "{retained:#}");
        assert_eq!((&retained["timeout_kind"], &retained["stdout"]), (&"total".into(), &"once\n".into()));
        let wait = json!({ "operation": "job_wait", "container": name, "job_id": retained["job_id"], "timeout": 20 });
        let ended = tool.call(wait).await;
        assert_eq!((&ended["reason"], &ended["exit_code"]), (&"exit".into(), &0.into()), "{ended:#}");
        assert_eq!(ended["output"], "once\ntwice\n");
        ran("s58", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s62_processes_left_by_a_command_are_counted_and_continue() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let begun = Instant::now();
        let answer = tool.exec(&name, "sleep 60 & echo up").await;
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
        assert_eq!((&answer["left_running"], &answer["stdout"]), (&1.into(), &"up\n".into()), "{answer:#}");
        assert_eq!(answer["warnings"][0]["code"], "left_running");
        assert!(tool.prints(&name, PROCESSES).await.contains("sleep 60"));
        let call = json!({ "operation": "exec", "container": name, "workdir": "/tmp", "env": { "A": "b" },
            "command": "pwd; echo $A" });
        assert_eq!(tool.call(call).await["stdout"], "/tmp\nb\n");
        let call = json!({ "operation": "exec", "container": name, "workdir": "/nowhere", "command": "true" });
        assert_eq!(tool.call(call).await["code"], "path_not_found");
        ran("s62", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_signal_has_its_name_and_a_code_of_the_same_number_has_none() {
    with_tool("", async |tool| {
        let name = tool.created(json!({ "workdir": "/tmp" })).await;
        let answer = tool.exec(&name, "kill -9 $$").await;
        assert_eq!((&answer["exit_code"], &answer["signal"]), (&137.into(), &"KILL".into()), "{answer:#}");
        let answer = tool.exec(&name, "exit 137").await;
        assert_eq!((&answer["exit_code"], &answer["signal"]), (&137.into(), &json!(null)), "{answer:#}");
    })
    .await;
}

#[tokio::test]
async fn a_secret_reaches_its_command_and_no_process_list() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let canary = format!("canary-{}", coracle_types::random_hex::<8>());
        let call = json!({ "operation": "exec", "container": name, "env": { "API_KEY": canary },
            "command": "sleep 1; echo $API_KEY" });
        let (answer, seen) = tokio::join!(tool.call(call), on_a_command_line(&canary));
        assert_eq!(answer["stdout"], format!("{canary}\n"));
        assert!(!seen, "the secret stood in the arguments of a process");
        let making = tool.created(json!({ "env": { "API_KEY": canary } }));
        let (name, seen) = tokio::join!(making, on_a_command_line(&canary));
        assert!(!seen, "the secret stood in the arguments of a process");
        assert_eq!(tool.prints(&name, "echo $API_KEY").await, canary);
    })
    .await;
}

/// Watches all processes of the host for about a second. The call itself uses standard input.
async fn on_a_command_line(canary: &str) -> bool {
    let mut seen = false;
    for _ in 0..50 {
        let lines = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = lines.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
        seen |= lines.into_iter().any(|it| String::from_utf8_lossy(&it).contains(canary));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    seen
}

#[tokio::test]
async fn input_of_any_size_is_streamed() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let mut command = tool.command(["exec", &name, "--", "wc", "-c"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let feed = async {
            let piece = vec![b'x'; 1 << 20];
            for _ in 0..64 {
                pipe.write_all(&piece).await.unwrap();
            }
            drop(pipe);
        };
        let (_, output) = tokio::join!(feed, child.wait_with_output());
        assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout).trim(), "67108864");
    })
    .await;
}

#[tokio::test]
async fn a_command_that_reads_nothing_does_not_wait_for_the_end_of_its_input() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let mut command = tool.command(["exec", &name, "--", "echo", "done"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let _held_open = child.stdin.take();
        let output = tokio::time::timeout(Duration::from_secs(10), child.wait_with_output()).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    })
    .await;
}

#[tokio::test]
async fn a_container_without_a_guest_still_runs_commands_in_their_limits() {
    with_engine("guest = \"never\"\n", async |tool| {
        let created = tool.create(json!({})).await;
        assert_eq!(created["warnings"][0]["code"], "no_guest", "{created:#}");
        let name = created["container"].as_str().unwrap();
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        assert_eq!(status["guest"], "none");
        assert_eq!(tool.prints(name, "echo it runs").await, "it runs");
        let call = json!({ "operation": "exec", "container": name, "timeout": 1, "command": "sleep 300 & sleep 300" });
        let answer = tool.call(call).await;
        assert_eq!((&answer["timed_out"], &answer["tree_ended"]), (&true.into(), &true.into()), "{answer:#}");
        for (operation, more) in [
            ("exec", json!({ "on_timeout": "keep" })),
            ("exec", json!({ "env": { "API_KEY": "x" } })),
            ("exec_background", json!({})),
        ] {
            let mut call = json!({ "operation": operation, "container": name, "command": "true" });
            super::merge(call.as_object_mut().unwrap(), more);
            let refused = tool.call(call).await;
            assert_eq!((&refused["code"], &refused["details"]["capability"]), (&"unsupported".into(), &"guest".into()));
        }
    })
    .await;
}

#[tokio::test]
async fn a_command_cut_off_by_the_stop_of_its_container_says_so_with_its_output() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        let id = coracle_types::ContainerId::parse(status["id"].as_str().unwrap()).unwrap();
        let stop = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            tool.case.runtime.stop(&id, Duration::from_secs(10)).await.unwrap();
        };
        let (answer, ()) = tokio::join!(tool.exec(&name, "echo so far; sleep 300"), stop);
        assert_eq!((&answer["code"], &answer["stdout"]), (&"not_running".into(), &"so far\n".into()), "{answer:#}");
    })
    .await;
}

/// An engine over TCP cannot use files of this host: the guest is uploaded and reached by a stream.
#[tokio::test]
async fn an_engine_that_shares_no_files_gets_its_guest_by_upload() {
    // Docker's program can be given an engine by TCP.
    Person::new("")
        .on_one_engine(EngineKind::Docker, async |tool| {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let proxy = tokio::spawn(async move {
                while let Ok((mut far, _)) = listener.accept().await {
                    tokio::spawn(async move {
                        let mut near = tokio::net::UnixStream::connect("/var/run/docker.sock").await.unwrap();
                        let _ = tokio::io::copy_bidirectional(&mut far, &mut near).await;
                    });
                }
            });
            let config = tool.home().join("remote.toml");
            let text = format!("engine = \"docker\"\nengine_host = \"tcp://{address}\"\nallow_remote_engine = true\n");
            std::fs::write(&config, text).unwrap();
            let call = async |call: serde_json::Value| -> serde_json::Value {
                let words = ["call", "--config", config.to_str().unwrap(), "-"];
                let output = tool.run(words, call.to_string().as_bytes()).await;
                serde_json::from_slice(&output.stdout).unwrap()
            };
            let created = call(tool.create_call(json!({}))).await;
            let name = created["container"].as_str().unwrap_or_else(|| panic!("{created:#}"));
            let status = call(json!({ "operation": "status", "container": name })).await;
            assert_eq!(status["guest"], "uploaded", "{status:#}");
            let ran = call(json!({ "operation": "exec", "container": name, "command": "echo far; exit 3" })).await;
            assert_eq!((&ran["stdout"], &ran["exit_code"]), (&"far\n".into(), &3.into()), "{ran:#}");
            let job = call(json!({ "operation": "exec_background", "container": name, "command": "echo job" })).await;
            let wait = json!({ "operation": "job_wait", "container": name, "job_id": job["job_id"] });
            assert_eq!(call(wait).await["output"], "job\n");
            assert_eq!(call(json!({ "operation": "destroy", "container": name })).await["success"], true);
            proxy.abort();
        })
        .await;
}

#[tokio::test]
async fn a_chatty_leftover_does_not_hold_the_call_that_left_it() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec", "container": name, "timeout": 120,
            "command": "(while :; do echo x; sleep 0.1; done) & echo started" });
        let begun = Instant::now();
        let answer = tool.call(call).await;
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
        // The loop, and mostly the `sleep` that it waits for.
        assert!(answer["exit_code"] == 0 && answer["left_running"].as_u64() > Some(0), "{answer:#}");
        let job = json!({ "operation": "exec_cancel", "container": name, "job_id": answer["job_id"] });
        let ended = tool.call(job).await;
        assert_eq!(ended["success"], true, "{ended:#}");
        let left = tool.prints(&name, PROCESSES).await;
        assert!(!left.contains("sleep 0.1"), "{left}");
    })
    .await;
}

#[tokio::test]
async fn cut_output_can_be_read_by_its_id_even_if_it_was_streamed() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec", "container": name, "command": "seq 1 20000", "max_output": "1k" });
        let output = tool.run(["call", "--stream", "-"], call.to_string().as_bytes()).await;
        let text = String::from_utf8(output.stdout).unwrap();
        let last: serde_json::Value = serde_json::from_str(text.trim_end().lines().last().unwrap()).unwrap();
        let answer = &last["result"];
        assert_eq!(answer["truncated"], true, "{answer:#}");
        let read = json!({ "operation": "job_read", "container": name, "job_id": answer["job_id"], "line": 15000, "limit": 6 });
        assert_eq!(tool.call(read).await["data"], "15000\n");
    })
    .await;
}

#[tokio::test]
async fn a_slow_reader_does_not_count_as_silence_of_the_command() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let mut command =
            tool.command(["exec", &name, "--silence-timeout", "2", "--", "sh", "-c", "yes | head -c 8000000"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        let mut bytes = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(child.stdout.as_mut().unwrap(), &mut bytes).await.unwrap();
        assert_eq!((bytes.len(), child.wait().await.unwrap().code()), (8_000_000, Some(0)));
    })
    .await;
}

#[tokio::test]
async fn a_job_whose_program_is_missing_says_so() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec_background", "container": name, "command": ["/no/such/program"] });
        let answer = tool.call(call).await;
        assert_eq!(answer["code"], "path_not_found", "{answer:#}");
    })
    .await;
}

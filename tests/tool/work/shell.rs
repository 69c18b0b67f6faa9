//! The shell.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{with_agent, with_real_agent};
use crate::engines::{Lack, WITHOUT_WAITING, ran};

#[tokio::test]
async fn w30_a_command_starts_in_a_directory_of_the_workspace() {
    with_agent("", async |agent| {
        agent.sh("mkdir src; echo >file; ln -s / root; ln -s src link; ln -s none dangling").await;
        let run = |cwd: &str| json!({ "command": ["pwd"], "cwd": cwd });
        for cwd in ["src", "/workspace/src"] {
            let ran = agent.value("shell_execute", run(cwd)).await;
            assert_eq!(ran["cwd"], "/workspace/src", "{ran:#}");
            assert!(ran["stdout"].as_str().unwrap().trim_end().ends_with("/workspace/src"), "{ran:#}");
        }
        assert_eq!(agent.value("shell_execute", run("link")).await["exit_code"], 0);
        for (cwd, code) in
            [("/etc", "invalid_cwd"), ("none", "cwd_not_found"), ("file", "cwd_not_directory"), ("root", "path_escape")]
        {
            assert_eq!(agent.code("shell_execute", run(cwd)).await, code, "{cwd}");
        }
        ran("w30", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w31_a_command_ends_with_all_that_it_started() {
    with_real_agent("", async |agent| {
        agent.sh("true").await;
        let parallel = agent.call("shell_execute", json!({ "command": ["sh", "-c", "sleep 3; echo lived"] }));
        let limited = async {
            let begun = Instant::now();
            let call = json!({ "command": ["sh", "-c", "echo hi; sleep 301 & sleep 301"], "timeout_seconds": 1 });
            (agent.call("shell_execute", call).await, begun.elapsed())
        };
        let (survivor, (ended, took)) = tokio::join!(parallel, limited);
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert_eq!((&ended["success"], &ended["code"]), (&false.into(), &"timed_out".into()), "{ended:#}");
        assert_eq!(ended["message"], "`shell_execute` exceeded the configured timeout.");
        let value = &ended["value"];
        assert_eq!(
            (&value["exit_code"], &value["timed_out"], &value["stdout"]),
            (&124.into(), &true.into(), &"hi\n".into())
        );
        assert_eq!(value["stderr"], "coracle: time limit of 1 s reached\n");
        assert_eq!(survivor["value"]["stdout"], "lived\n");
        assert_eq!(agent.sh("ps | grep -c '[s]leep 301'").await["stdout"], "0\n");
        let own = agent.sh("exit 124").await;
        assert_eq!((&own["exit_code"], &own["timed_out"]), (&124.into(), &false.into()));
        ran("w31", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w32_cut_output_is_retained_whole() {
    with_real_agent("", async |agent| {
        let exact = agent.sh("printf 'a \\n\\n'").await;
        assert_eq!((&exact["stdout"], &exact["stdout_truncated"]), (&"a \n\n".into(), &false.into()));
        let long = agent.sh("i=0; while [ $i -lt 5000 ]; do echo \"ä line $i\"; i=$((i+1)); done").await;
        let (stdout, total) = (long["stdout"].as_str().unwrap(), long["stdout_bytes"].as_u64().unwrap());
        assert!(stdout.len() <= 32_768 && stdout.len() > 32_760 && stdout.ends_with("[truncated]"), "{}", stdout.len());
        assert!(total > 60_000, "{total}");
        assert!(long["stdout_tail"].as_str().unwrap().ends_with("ä line 4999\n"));
        let id = long["output_id"].as_str().unwrap();
        let (mut whole, mut offset) = (String::new(), 0);
        loop {
            let page = json!({ "output_id": id, "offset": offset, "stream": "stdout", "limit": 50000 });
            let page = agent.value("shell_output", page).await;
            whole.push_str(page["data"].as_str().unwrap());
            if page["eof"] == true {
                break;
            }
            offset = page["next_offset"].as_u64().unwrap();
        }
        let expected: String = (0..5000).map(|it| format!("ä line {it}\n")).collect();
        assert_eq!((whole.len() as u64, whole == expected), (total, true));
        assert_eq!(agent.code("shell_output", json!({ "output_id": "00000000" })).await, "output_expired");
        ran("w32", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w33_a_flood_is_counted_and_nothing_is_captured_that_is_not_wanted() {
    with_real_agent("", async |agent| {
        let flood = json!({ "command": ["sh", "-c", "head -c 1000000000 /dev/zero; head -c 1000000000 /dev/zero >&2"], "timeout_seconds": 300 });
        let flooded = agent.value("shell_execute", flood).await;
        assert_eq!((&flooded["stdout_bytes"], &flooded["stderr_bytes"]), (&1_000_000_000.into(), &1_000_000_000.into()));
        let quiet = json!({ "command": ["sh", "-c", "echo x; echo y >&2"], "capture_output": false });
        let quiet = agent.value("shell_execute", quiet).await;
        assert_eq!((&quiet["stdout"], &quiet["stderr"]), (&"capture disabled".into(), &"capture disabled".into()));
        assert_eq!(quiet.get("output_id"), None);
        ran("w33", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w34_no_process_continues_after_its_command() {
    with_real_agent("", async |agent| {
        agent.sh("true").await;
        for script in ["sleep 601 &", "setsid sleep 601 & exit 0"] {
            let begun = Instant::now();
            let answer = agent.call("shell_execute", json!({ "command": ["sh", "-c", script] })).await;
            assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
            assert_eq!(answer["value"]["survivors_ended"], 1, "{answer:#}");
            assert_eq!(answer["warnings"][0]["code"], "background_ended", "{answer:#}");
        }
        assert_eq!(agent.sh("ps | grep -c '[s]leep 601'").await["stdout"], "0\n");
        for _ in 0..200 {
            agent.value("shell_execute", json!({ "command": ["true"] })).await;
        }
        assert_eq!(agent.sh("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l").await["stdout"], "0\n");
        ran("w34", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w35_a_command_that_takes_too_much_memory_says_so() {
    with_real_agent("[workspace]\nmemory = \"128m\"\n", async |agent| {
        if agent.tool.case.lacks(Lack::EnforcedLimits) {
            return;
        }
        let eat = json!({ "command": ["sh", "-c", "tail -c 900000000 </dev/zero"], "timeout_seconds": 60 });
        let answer = agent.call("shell_execute", eat).await;
        assert_eq!((&answer["success"], &answer["code"]), (&false.into(), &"out_of_memory".into()), "{answer:#}");
        assert_eq!(answer["message"], "`shell_execute` was ended: memory limit reached.");
        assert_eq!(answer["value"]["termination"], "oom");
        assert!(answer["value"]["stderr"].as_str().unwrap().ends_with("coracle: memory limit of 128 MiB reached\n"));
        ran("w35", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w36_input_and_variables_arrive() {
    with_agent("", async |agent| {
        let call =
            json!({ "command": ["sh", "-c", "wc -c; echo $A"], "stdin": "ü".repeat(48_000), "env": { "a": "1" } });
        let got = agent.value("shell_execute", call).await;
        let words: Vec<&str> = got["stdout"].as_str().unwrap().split_whitespace().collect();
        assert_eq!(words, ["96000", "1"]);
        let missing = agent.value("shell_execute", json!({ "command": ["no-such-program"] })).await;
        assert_eq!(missing["exit_code"], 127, "{missing:#}");
        let text = agent.call("shell_execute", json!({ "command": "ls -l" })).await;
        assert_eq!(text["code"], "invalid_command", "{text:#}");
        assert_eq!(
            agent.code("shell_execute", json!({ "command": ["ls"], "env": { "a": "1", "A": "2" } })).await,
            "invalid_env"
        );
        ran("w36", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w37_the_shell_may_have_another_name() {
    with_agent("[workspace]\nshell_names = [\"podman_shell\"]\n", async |agent| {
        let answer = agent.call("podman_shell", json!({ "command": ["true"] })).await;
        assert_eq!(answer["message"], "`podman_shell` exited with 0.", "{answer:#}");
        assert!(coracle::tools::execute_named(&agent.process, "shell_execute", serde_json::Map::new()).await.is_none());
        ran("w37", agent.engine());
    })
    .await;
}

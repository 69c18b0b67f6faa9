//! Commands.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::{eventually, with_engine, with_tool};
use crate::engines::{WITHOUT_WAITING, ran};

const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn s56_exit_codes_are_the_commands_own() {
    with_tool("", async |tool| {
        let name = tool.created(json!({ "workdir": "/tmp" })).await;
        let answer = tool.exec(&name, "exit 7").await;
        assert_eq!(
            (&answer["returncode"], &answer["exit_code"], &answer["success"]),
            (&7.into(), &7.into(), &true.into())
        );
        let answer = tool.exec(&name, "exit 124").await;
        assert_eq!((&answer["exit_code"], &answer["timed_out"]), (&124.into(), &false.into()));
        let answer = tool.exec(&name, json!(["no-such-program"])).await;
        assert_eq!((&answer["exit_code"], &answer["success"]), (&127.into(), &true.into()), "{answer:#}");
        assert_ne!(answer["stderr"], "");
        tool.case.runtime.stop(&id_of(tool, &name).await, Duration::ZERO).await.unwrap();
        let answer = tool.exec(&name, "true").await;
        assert_eq!(answer["code"], "not_running", "{answer:#}");
        ran("s56", tool.case.engine());
    })
    .await;
}

async fn id_of(tool: &super::Tool<'_>, name: &str) -> coracle_types::ContainerId {
    let status = tool.call(json!({ "operation": "status", "container": name })).await;
    coracle_types::ContainerId::parse(status["id"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn s57_a_limit_ends_everything_that_the_command_started() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec", "container": name, "timeout": 1,
            "command": "echo a; sleep 300 & setsid sleep 300 & sleep 300" });
        let begun = Instant::now();
        let answer = tool.call(call).await;
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
        assert_eq!((&answer["exit_code"], &answer["timed_out"]), (&124.into(), &true.into()), "{answer:#}");
        assert_eq!((&answer["stdout"], &answer["tree_ended"]), (&"a\n".into(), &true.into()));
        let left = tool
            .prints(
                &name,
                r#"grep -l "^300$" /dev/null; for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f; done 2>/dev/null"#,
            )
            .await;
        assert!(!left.contains("sleep 300"), "{left}");
        ran("s57", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_limit_is_enforced_even_if_a_command_ignores_term() {
    with_engine("[exec]\ngrace = 0.5\n", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec", "container": name, "timeout": 1,
            "command": "trap '' TERM; (trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done') & while :; do sleep 1; done" });
        let begun = Instant::now();
        let answer = tool.call(call).await;
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
        assert_eq!(answer["tree_ended"], true, "{answer:#}");
    })
    .await;
}

#[tokio::test]
async fn silence_ends_the_silent_only() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let exec = async |command: &str| {
            let call = json!({ "operation": "exec", "container": name, "command": command, "silence_timeout": 1 });
            tool.call(call).await
        };
        let answer = exec("for i in 1 2 3 4; do echo $i; sleep 0.5; done").await;
        assert_eq!((&answer["timed_out"], &answer["stdout"]), (&false.into(), &"1\n2\n3\n4\n".into()));
        let answer = exec("echo once; sleep 60").await;
        assert_eq!((&answer["timeout_kind"], &answer["stdout"]), (&"silence".into(), &"once\n".into()));
    })
    .await;
}

#[tokio::test]
async fn s61_arguments_input_and_bytes_are_unchanged() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let words = ["printf", "%s|", "it's", "a  b", "new\nline", "\"$HOME\"", "", "-x"];
        assert_eq!(tool.exec(&name, json!(words)).await["stdout"], "it's|a  b|new\nline|\"$HOME\"||-x|");
        let text = "0123456789abcdef".repeat(1 << 16);
        let call = json!({ "operation": "exec", "container": name, "command": ["cat"], "stdin": text, "max_output": "2m" });
        assert!(tool.call(call).await["stdout"] == text);
        let bytes = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P/7/";
        let call = json!({ "operation": "exec", "container": name, "command": ["cat"], "stdin_base64": bytes, "encoding": "base64" });
        assert_eq!(tool.call(call).await["stdout"], bytes);
        ran("s61", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn directory_and_variables_of_one_call() {
    with_engine("", async |tool| {
        let name = tool.created(json!({ "env": { "A": "of create", "B": "it's\n\"$x\"" } })).await;
        let call = json!({ "operation": "exec", "container": name, "workdir": "/tmp", "env": { "A": "of the call" },
            "command": "pwd; printf '%s|%s' \"$A\" \"$B\"" });
        assert_eq!(tool.call(call).await["stdout"], "/tmp\nof the call|it's\n\"$x\"");
        let call = json!({ "operation": "exec", "container": name, "workdir": "/nowhere", "command": "true" });
        assert_eq!(tool.call(call).await["code"], "path_not_found");
        let call = json!({ "operation": "exec", "container": name, "workdir": "/proc/self/fd/7", "command": "true" });
        assert_eq!(tool.call(call).await["success"], false);
    })
    .await;
}

#[tokio::test]
async fn a_flood_is_counted_and_cut_in_the_middle() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec", "container": name, "max_output": "1k",
            "command": "echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last" });
        let answer = tool.call(call).await;
        assert_eq!((&answer["truncated"], &answer["stdout_bytes"]), (&true.into(), &100_000_012.into()));
        let text = answer["stdout"].as_str().unwrap();
        assert!(
            text.starts_with("first\nx") && text.ends_with("x\nlast\n") && text.contains("bytes left out"),
            "{text}"
        );
        assert!(text.len() < 1200);
    })
    .await;
}

#[tokio::test]
async fn a_terminated_call_ends_its_command() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec", "container": name, "command": "echo up; exec sleep 301" }).to_string();
        let mut child = tool.command(["call", &call]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let runs = async || {
            tool.prints(&name, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").await.contains("sleep 301")
        };
        super::eventually("the command runs", Duration::from_secs(10), runs).await;
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let output = tokio::time::timeout(Duration::from_secs(10), child.wait()).await.unwrap().unwrap();
        assert_eq!(output.code(), Some(1));
        assert!(!runs().await, "the command outlived its call");
    })
    .await;
}

#[tokio::test]
async fn a_flood_does_not_hold_up_its_own_end() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let begun = Instant::now();
        let call =
            json!({ "operation": "exec", "container": name, "command": "yes", "timeout": 1, "max_output": "1k" });
        let answer = tool.call(call).await;
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
        assert_eq!((&answer["timed_out"], &answer["tree_ended"]), (&true.into(), &true.into()));
    })
    .await;
}

#[tokio::test]
async fn a_process_that_clears_its_environment_and_outlives_its_parent_is_ended_too() {
    with_engine("[exec]\ngrace = 0.5\n", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec", "container": name, "timeout": 1,
            "command": "env -i setsid sh -c 'trap : TERM; while :; do sleep 77; done' & sleep 300" });
        assert_eq!(tool.call(call).await["tree_ended"], true);
        let left = tool.prints(&name, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").await;
        assert!(!left.contains("sleep 77"), "{left}");
    })
    .await;
}

#[tokio::test]
async fn a_call_cancelled_before_its_command_started_leaves_no_command() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        for wait in [20, 40, 60, 80, 100, 120] {
            let call = json!({ "operation": "exec", "container": name, "command": "exec sleep 302" }).to_string();
            let mut child = tool.command(["call", &call]).stdout(std::process::Stdio::null()).spawn().unwrap();
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            tokio::time::timeout(Duration::from_secs(30), child.wait()).await.unwrap().unwrap();
        }
        let left = tool.prints(&name, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").await;
        assert!(!left.contains("sleep 302"), "{left}");
    })
    .await;
}

#[tokio::test]
async fn a_command_whose_caller_is_killed_does_not_take_what_came_of_its_input_for_the_whole() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let script = "cat > /tmp/part; mv /tmp/part /tmp/whole";
        let words = ["exec", &name, "--", "sh", "-c", script];
        let mut child = tool.command(words).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"the first half").await.unwrap();
        let arrived = async || tool.exec(&name, "cat /tmp/part").await["stdout"] == "the first half";
        eventually("its input arrives", SOON, arrived).await;
        child.kill().await.unwrap();
        let runs = async || tool.exec(&name, "pidof cat").await["exit_code"] == 0;
        eventually("it is ended", SOON, async || !runs().await).await;
        assert_ne!(
            tool.exec(&name, "test -e /tmp/whole").await["exit_code"],
            0,
            "half a file took the place of the whole"
        );
        drop(input);
        // A command that continues after its time limit still waits for the rest.
        let words = ["exec", "--timeout", "1", "--on-timeout", "keep", &name, "--", "sh", "-c", script];
        let mut child = tool.command(words).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"the first half").await.unwrap();
        child.wait().await.unwrap();
        let found = tool.exec(&name, "cat /tmp/part; pidof cat > /dev/null && test ! -e /tmp/whole").await;
        assert_eq!((&found["stdout"], &found["exit_code"]), (&json!("the first half"), &json!(0)), "{found:#}");
        drop(input);
    })
    .await;
}

#[tokio::test]
async fn a_name_that_is_used_again_is_not_the_container_that_was_removed() {
    with_engine("", async |tool| {
        let name = tool.created(json!({ "name": "web" })).await;
        tool.call(json!({ "operation": "destroy", "container": name })).await;
        let name = tool.created(json!({ "name": "web" })).await;
        let exec = json!({ "operation": "exec", "container": name, "command": "true", "workdir": "/none" });
        let answer = tool.call(exec).await;
        assert_ne!(answer["code"], "container_removed", "{answer:#}");
        assert!(answer["error"].as_str().unwrap().contains("/none"), "{answer:#}");
    })
    .await;
}

#[tokio::test]
async fn running_out_of_memory_leaves_nothing_in_the_callers_directory() {
    with_engine("", async |tool| {
        let name = tool.created(json!({ "memory_limit": "48m" })).await;
        let answer = tool.exec(&name, "tail /dev/zero").await;
        assert_ne!(answer["exit_code"], 0, "{answer:#}");
        let left = |dir: &std::path::Path| dir.join("oom").exists();
        assert!(!left(&tool.work()) && !left(std::path::Path::new(".")), "the engine's monitor left a file");
    })
    .await;
}

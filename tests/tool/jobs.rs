//! Background jobs.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Tool, eventually, with_engine, with_tool};
use crate::engines::{Lack, WITHOUT_WAITING, ran};

/// The limit for "at once" on a busy machine.
const AT_ONCE: Duration = Duration::from_millis(100);

impl Tool<'_> {
    /// Starts a job, which has to succeed: its id.
    async fn job(&self, container: &str, command: impl Into<Value>) -> String {
        let command: Value = command.into();
        let call = json!({ "operation": "exec_background", "container": container, "command": command });
        let answer = self.call(call).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        answer["job_id"].as_str().unwrap().to_owned()
    }

    /// Makes a call about a job.
    async fn of_job(&self, operation: &str, container: &str, job: &str, more: Value) -> Value {
        let mut call = json!({ "operation": operation, "container": container, "job_id": job });
        super::merge(call.as_object_mut().unwrap(), more);
        self.call(call).await
    }

    async fn words_inside(&self, container: &str) -> String {
        self.prints(container, r"for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f; echo; done 2>/dev/null").await
    }
}

#[tokio::test]
async fn s64_a_job_runs_then_has_exited_and_a_hundred_leave_no_zombie() {
    with_tool("[jobs]\nmax_running = 200\n", async |tool| {
        let name = tool.created(json!({})).await;
        let job = tool.job(&name, "echo \"it's\"; sleep 2; exit 3").await;
        let answer = tool.of_job("exec_poll", &name, &job, json!({})).await;
        assert_eq!((&answer["running"], &answer["exit_code"]), (&true.into(), &Value::Null), "{answer:#}");
        let answer = tool.of_job("job_wait", &name, &job, json!({})).await;
        assert_eq!((&answer["reason"], &answer["exit_code"]), (&"exit".into(), &3.into()), "{answer:#}");
        let answer = tool.of_job("exec_poll", &name, &job, json!({})).await;
        assert_eq!((&answer["state"], &answer["output"]), (&"exited".into(), &"it's\n".into()), "{answer:#}");
        assert!(answer["ended_at"].as_str() > answer["started_at"].as_str(), "{answer:#}");
        for _ in 0..100 {
            tool.job(&name, json!(["true"])).await;
        }
        let all_exited = async || {
            let answer = tool.call(json!({ "operation": "jobs", "container": name })).await;
            let jobs = answer["jobs"].as_array().unwrap();
            let exited = |it: &&Value| it["state"] == "exited" && it["foreground"] == false;
            jobs.iter().filter(exited).count() == 101
        };
        eventually("a hundred jobs have exited", Duration::from_secs(1), all_exited).await;
        if tool.case.is_real() {
            let zombies = tool.prints(&name, "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null; true").await;
            assert_eq!(zombies, "");
        }
        ran("s64", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s65_a_cancelled_job_leaves_nothing_and_can_be_cancelled_twice() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        let tree = "for i in 1 2 3 4 5 6 7 8 9 10; do setsid sleep 311 & sleep 311 & done; echo up; wait";
        let job = tool.job(&name, tree).await;
        let line = json!({ "until": "regex", "pattern": "up", "offset": 0 });
        assert_eq!(tool.of_job("job_wait", &name, &job, line).await["reason"], "regex");
        let answer = tool.of_job("exec_cancel", &name, &job, json!({})).await;
        assert_eq!((&answer["cancelled"], &answer["tree_ended"]), (&true.into(), &true.into()), "{answer:#}");
        assert_eq!(answer["state"], "cancelled");
        if tool.case.is_real() {
            assert!(!tool.words_inside(&name).await.contains("sleep 311"));
        }
        let again = tool.of_job("exec_cancel", &name, &job, json!({})).await;
        assert_eq!((&again["success"], &again["cancelled"]), (&true.into(), &false.into()), "{again:#}");
        for operation in ["exec_poll", "job_read", "job_wait", "exec_cancel"] {
            let answer = tool.of_job(operation, &name, "00000000", json!({})).await;
            assert_eq!(answer["code"], "job_not_found", "{operation}: {answer:#}");
        }
        ran("s65", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s66_a_wait_ends_with_the_event_it_is_for() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let wait = async |job: &str, more: Value| tool.of_job("job_wait", &name, job, more).await;
        let job = tool.job(&name, "sleep 1; nc -l -p 8099 & echo begun; sleep 1; echo ready; sleep 312").await;
        let answer = wait(&job, json!({ "until": ["port", "exit"], "port": 8099 })).await;
        assert_eq!((&answer["reason"], &answer["running"]), (&"port".into(), &true.into()), "{answer:#}");
        let answer = wait(&job, json!({ "until": "regex", "pattern": "^rea", "offset": 0 })).await;
        assert_eq!((&answer["reason"], &answer["match"]["text"]), (&"regex".into(), &"ready".into()), "{answer:#}");
        let answer = wait(&job, json!({ "until": "idle", "idle": 0.3 })).await;
        assert_eq!(answer["reason"], "idle", "{answer:#}");
        let answer = wait(&job, json!({ "timeout": 0.2 })).await;
        assert_eq!((&answer["reason"], &answer["success"]), (&"timeout".into(), &true.into()), "{answer:#}");
        assert!((200..400).contains(&answer["waited_ms"].as_u64().unwrap()), "{answer:#}");
        tool.of_job("exec_cancel", &name, &job, json!({})).await;
        let answer = wait(&job, json!({ "until": "regex", "pattern": "never" })).await;
        assert_eq!((&answer["reason"], &answer["state"]), (&"exit".into(), &"cancelled".into()), "{answer:#}");
        assert!(promptest(tool, &name).await < AT_ONCE);
        ran("s66", tool.case.engine());
    })
    .await;
}

/// The delay between a printed line and the answer of the wait for it, the shortest of some: other tests run beside
/// this one.
async fn promptest(tool: &Tool<'_>, name: &str) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        let job = tool.job(name, "sleep 1; read up _ </proc/uptime; echo at $up").await;
        let answer = tool.of_job("job_wait", name, &job, json!({ "until": "regex", "pattern": "at " })).await;
        let now = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds = |text: &str| text.split(' ').next().unwrap().parse::<f64>().unwrap();
        let printed = answer["match"]["text"].as_str().unwrap_or_else(|| panic!("{answer:#}"));
        let took = seconds(&now) - seconds(printed.strip_prefix("at ").unwrap());
        shortest = shortest.min(Duration::from_secs_f64(took.max(0.0)));
    }
    shortest
}

#[tokio::test]
async fn s67_a_job_outlives_the_tool_with_its_output_whole_and_is_lost_with_its_container() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        // Each call is a process of its own, so the tool was restarted between any two of them.
        let job = tool.job(&name, "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; echo err >&2").await;
        assert_eq!(tool.of_job("job_wait", &name, &job, json!({})).await["exit_code"], 0);
        let whole: String = (0..3000).map(|it| format!("line {it}\n")).collect();
        let (mut read, mut offset) = (String::new(), 0);
        loop {
            let more = json!({ "stream": "stdout", "offset": offset, "limit": 7001 });
            let page = tool.of_job("job_read", &name, &job, more).await;
            assert_eq!((&page["success"], &page["offset"]), (&true.into(), &offset.into()), "{page:#}");
            read.push_str(page["data"].as_str().unwrap());
            offset = page["next_offset"].as_u64().unwrap();
            if page["eof"] == true {
                break;
            }
        }
        assert_eq!(read, whole);
        let line = tool.of_job("job_read", &name, &job, json!({ "stream": "stdout", "line": 2999 })).await;
        assert_eq!(line["data"], "line 2998\nline 2999\n", "{line:#}");
        let end = tool.of_job("job_read", &name, &job, json!({ "stream": "stderr", "offset": -3 })).await;
        assert_eq!((&end["data"], &end["total_bytes"]), (&"rr\n".into(), &4.into()), "{end:#}");

        // A Pod is started once: only the first half holds there, which is not the whole scenario.
        if tool.case.lacks(Lack::Restart) {
            return;
        }
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        let id = coracle_types::ContainerId::parse(status["id"].as_str().unwrap()).unwrap();
        tool.case.runtime.stop(&id, Duration::from_secs(10)).await.unwrap();
        tool.case.runtime.start(&id).await.unwrap();
        let lost = tool.of_job("exec_poll", &name, &job, json!({})).await;
        assert_eq!((&lost["state"], &lost["running"]), (&"lost".into(), &false.into()), "{lost:#}");
        let waited = tool.of_job("job_wait", &name, &job, json!({})).await;
        assert_eq!((&waited["reason"], &waited["state"]), (&"exit".into(), &"lost".into()), "{waited:#}");
        assert_eq!(tool.of_job("exec_cancel", &name, &job, json!({})).await["cancelled"], false);
        assert_eq!(tool.of_job("job_read", &name, &job, json!({})).await["code"], "job_not_found");
        ran("s67", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s59_a_killed_tool_takes_its_command_along_and_no_job() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let job = tool.job(&name, "exec sleep 314").await;
        let call = json!({ "operation": "exec", "container": name, "command": "exec sleep 313" }).to_string();
        let mut child = tool.command(["call", &call]).stdout(Stdio::null()).spawn().unwrap();
        let runs = async |word: &str| tool.words_inside(&name).await.contains(word);
        eventually("the command runs", Duration::from_secs(10), async || runs("sleep 313").await).await;
        child.kill().await.unwrap();
        eventually("the command is gone", Duration::from_secs(10), async || !runs("sleep 313").await).await;
        assert!(runs("sleep 314").await);
        assert_eq!(tool.of_job("exec_poll", &name, &job, json!({})).await["running"], true);
        ran("s59", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s60_cut_output_of_a_flood_is_paged_and_searched() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let flood = "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo needle 42; head -c 50000000 /dev/zero | tr '\\0' y; echo end";
        let call = json!({ "operation": "exec", "container": name, "command": flood, "max_output": "4k" });
        let answer = tool.call(call).await;
        assert_eq!((&answer["truncated"], &answer["stdout_bytes"]), (&true.into(), &100_000_015.into()));
        let job = answer["job_id"].as_str().unwrap_or_else(|| panic!("{}", answer["job_id"]));
        let last = tool.of_job("job_read", &name, job, json!({ "stream": "stdout", "offset": -6 })).await;
        assert_eq!((&last["data"], &last["eof"]), (&"yyend\n".into(), &true.into()), "{last:#}");
        let found = tool.of_job("job_read", &name, job, json!({ "pattern": "^needle \\d+", "context": 0 })).await;
        assert_eq!((&found["match_count"], &found["truncated"]), (&1.into(), &false.into()), "{found:#}");
        assert_eq!(found["matches"][0]["text"], "needle 42");
        assert_eq!(found["matches"][0]["offset"], 50_000_001);
        let first = found["first_offset"].as_u64().unwrap();
        assert!(first > 0, "64 MiB are retained");
        let gone = tool.of_job("job_read", &name, job, json!({ "stream": "stdout", "limit": 1 })).await;
        assert_eq!((&gone["offset"], &gone["data"]), (&gone["first_offset"], &"x".into()), "{gone:#}");
        ran("s60", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn only_so_many_jobs_run_at_once_and_a_limit_ends_one() {
    with_tool("[jobs]\nmax_running = 2\n", async |tool| {
        let name = tool.created(json!({})).await;
        let first = tool.job(&name, "sleep 315").await;
        tool.job(&name, "sleep 315").await;
        let call = json!({ "operation": "exec_background", "container": name, "command": "sleep 315" });
        let answer = tool.call(call).await;
        assert_eq!(
            (&answer["code"], &answer["details"]["current"]),
            (&"limit_reached".into(), &2.into()),
            "{answer:#}"
        );
        tool.of_job("exec_cancel", &name, &first, json!({ "grace": 0 })).await;
        let call = json!({ "operation": "exec_background", "container": name, "command": "sleep 315", "timeout": 0.2 });
        let limited = tool.call(call).await["job_id"].as_str().unwrap().to_owned();
        let answer = tool.of_job("job_wait", &name, &limited, json!({})).await;
        assert_eq!((&answer["state"], &answer["exit_code"]), (&"timed_out".into(), &124.into()), "{answer:#}");
    })
    .await;
}

#[tokio::test]
async fn only_the_allowed_number_of_concurrent_jobs_runs() {
    with_tool("[jobs]\nmax_running = 2\n", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec_background", "container": name, "command": "sleep 318" });
        let answers = futures_util::future::join_all((0..8).map(|_| tool.call(call.clone()))).await;
        let begun = answers.iter().filter(|answer| answer["success"] == true).count();
        assert_eq!(begun, 2, "{answers:#?}");
        assert!(answers.iter().all(|answer| answer["success"] == true || answer["code"] == "limit_reached"));
    })
    .await;
}

#[tokio::test]
async fn a_job_gets_its_input_directory_and_variables() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec_background", "container": name, "workdir": "/tmp", "env": { "A": "b c" },
            "stdin": "from stdin\n", "command": "cat; pwd; echo $A" });
        let job = tool.call(call).await["job_id"].as_str().unwrap().to_owned();
        let answer = tool.of_job("job_wait", &name, &job, json!({})).await;
        let output = answer["output"].as_str().unwrap();
        assert!(output.starts_with("from stdin\n") && output.ends_with("tmp\nb c\n"), "{answer:#}");
        let bad = tool.of_job("job_read", &name, &job, json!({ "pattern": "a(" })).await;
        assert_eq!((&bad["code"], &bad["details"]["field"]), (&"invalid_input".into(), &"pattern".into()), "{bad:#}");
        let bad = tool.of_job("exec_poll", &name, "../x", json!({})).await;
        assert_eq!(bad["code"], "invalid_name", "{bad:#}");
    })
    .await;
}

#[tokio::test]
async fn jobs_of_all_containers_are_those_that_this_session_may_see() {
    with_engine("[security]\ncross_session = \"none\"\n", async |tool| {
        let mine = tool.created(json!({})).await;
        let job = tool.job(&mine, "sleep 316").await;
        let call = tool.create_call(json!({})).to_string();
        let output = tool.run(["--session", "other", "call", &call], b"").await;
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        let theirs = made["container"].as_str().unwrap_or_else(|| panic!("{made:#}"));
        let listed = tool.call(json!({ "operation": "jobs" })).await;
        assert_eq!((&listed["count"], &listed["jobs"][0]["job_id"]), (&1.into(), &job.as_str().into()), "{listed:#}");
        let polled = tool.of_job("exec_poll", theirs, "00000000", json!({})).await;
        assert_eq!(polled["code"], "other_session", "{polled:#}");
        let destroy = json!({ "operation": "destroy", "container": theirs }).to_string();
        assert!(tool.run(["--session", "other", "call", &destroy], b"").await.status.success());
    })
    .await;
}

#[tokio::test]
async fn a_container_without_a_guest_says_that_it_can_keep_no_job() {
    with_tool("guest = \"never\"\n", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec_background", "container": name, "command": "true" });
        let answer = tool.call(call).await;
        assert_eq!((&answer["code"], &answer["details"]["capability"]), (&"unsupported".into(), &"guest".into()));
        assert!(answer["hint"].as_str().unwrap().contains("`exec`"), "{answer:#}");
        assert_eq!(tool.call(json!({ "operation": "jobs" })).await["count"], 0);
    })
    .await;
}

#[tokio::test]
async fn a_user_uses_jobs_in_a_script() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let script = r"printf 'a\377b\n'; echo boom >&2; exit 7";
        let begun = tool.run(["exec-background", &name, "--", "sh", "-c", script], b"").await;
        let id = String::from_utf8(begun.stdout).unwrap();
        assert!(id.trim().len() == 8 && id.ends_with('\n'), "{id}");
        let job = id.trim();
        let waited = tool.run(["job-wait", &name, job], b"").await;
        assert_eq!(waited.status.code(), Some(7), "{}", String::from_utf8_lossy(&waited.stderr));
        assert!(String::from_utf8_lossy(&waited.stderr).contains("exited 7"));
        let read = tool.run(["job-read", &name, job, "--stream", "stdout"], b"").await;
        assert_eq!((read.stdout.as_slice(), read.stderr.as_slice()), (&b"a\xffb\n"[..], &b""[..]));
        let found = tool.run(["job-read", &name, job, "--pattern", "bo+m"], b"").await;
        assert!(String::from_utf8_lossy(&found.stdout).contains(":boom\n"));
        let table = tool.run(["jobs", &name], b"").await;
        assert!(String::from_utf8_lossy(&table.stdout).contains("exited 7"));
        let sleeper = tool.job(&name, "sleep 317").await;
        let begun = Instant::now();
        let late = tool.run(["job-wait", &name, &sleeper, "--timeout", "0.2"], b"").await;
        assert_eq!(late.status.code(), Some(124));
        assert!(begun.elapsed() < WITHOUT_WAITING);
        let ended = tool.run(["exec-cancel", &name, &sleeper], b"").await;
        assert_eq!(String::from_utf8_lossy(&ended.stdout), format!("{sleeper} ended\n"));
    })
    .await;
}

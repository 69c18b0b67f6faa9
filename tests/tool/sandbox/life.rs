//! The life of sandboxes: owners, lifetimes, removal of all, and forwarded ports.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{Bench, Given, with_bench, with_bench_of};
use crate::engines::{IMAGE, git, ran};
use crate::servers::model::{call, calls, says};
use crate::tool::eventually;

impl Bench<'_> {
    /// Runs `coracle sandbox …`, with any result.
    pub(super) async fn sandbox(&self, words: &[&str]) -> Value {
        let output = self.tool.run(["sandbox"].iter().chain(words).chain(&["--json"]), b"").await;
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|err| panic!("{words:?}: {err}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// The rows of `coracle sandbox list`, by the workflow that each has.
    async fn rows(&self) -> Vec<Value> {
        let listed = self.sandbox(&["list"]).await;
        let rows = listed["sandboxes"].as_array().unwrap_or_else(|| panic!("{listed:#}"));
        assert_eq!(listed["count"], rows.len());
        rows.clone()
    }

    /// The record of a sandbox's container.
    fn room(&self, key: &str) -> Value {
        let file = self.tool.state().join(format!("sessions/sbx-{key}/sandbox.json"));
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    }

    /// A foreign container, which is removed with the test.
    async fn foreign(&self, name: &str, labels: &[String]) -> String {
        let (label, run) = self.tool.case.label();
        let own = format!("--label={label}={run}");
        let words = ["run", "--detach", "--network=none", "--name", name, &own];
        let words = words.into_iter().chain(labels.iter().map(String::as_str)).chain([IMAGE, "sleep", "900"]);
        self.tool.engine_says(&words.collect::<Vec<_>>()).await
    }

    async fn is_there(&self, id: &str) -> bool {
        self.tool.engine(&["inspect", "--type=container", id]).await.0
    }
}

fn key_of<'a>(rows: &'a [Value], workflow: &str) -> &'a str {
    let row = rows.iter().find(|it| it["workflows"] == json!([workflow]));
    row.unwrap_or_else(|| panic!("{workflow}: {rows:#?}"))["key"].as_str().unwrap()
}

#[tokio::test]
async fn x07_a_container_with_the_labels_of_a_sandbox_is_unchanged_by_every_call() {
    with_bench("", async |bench| {
        bench.created("mine").await;
        bench.inside("10002:10002", "echo kept > /workspace/worktrees/mine/kept").await;
        let first = bench.container().await;
        let labels = bench.tool.engine_says(&["inspect", "--format={{json .Config.Labels}}", &first]).await;
        let labels: std::collections::BTreeMap<String, String> = serde_json::from_str(&labels).unwrap();
        assert!(labels.contains_key("coracle.sig"), "{labels:?}");
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("--label={key}={value}")).collect();
        let copy = bench.foreign(&bench.tool.case.name("copy").to_string(), &labels).await;
        let state = async || bench.tool.engine_says(&["inspect", "--format={{json .State}}", &copy]).await;
        let before = state().await;

        bench.created("mine").await;
        assert_eq!(bench.container().await, first);
        let rows = bench.rows().await;
        let room = bench.tool.state().join(format!("sessions/sbx-{}/sandbox.json", key_of(&rows, "mine")));
        // The container's own record distinguishes it from the other; without that, its name.
        for containers in [false, true] {
            std::fs::write(&room, "").unwrap();
            if containers {
                std::fs::remove_dir_all(bench.tool.state().join("containers")).unwrap();
            }
            bench.created("mine").await;
            assert_eq!(bench.container().await, first, "{containers}");
        }
        bench.tool.engine_says(&["rm", "-f", &first]).await;
        bench.created("mine").await;
        let second = bench.container().await;
        assert!(second != first && second != copy);
        assert_eq!(bench.inside("10002:10002", "cat /workspace/worktrees/mine/kept").await, "kept");
        bench.tool.call(json!({ "operation": "list" })).await;
        bench.tool.call(json!({ "operation": "prune", "dry_run": false })).await;
        let removed = bench.sandbox(&["remove", "--all"]).await;
        assert_eq!(removed["removed"].as_array().map(Vec::len), Some(1), "{removed:#}");
        assert_eq!((bench.rows().await, bench.is_there(&second).await), (vec![], false));
        assert_eq!(state().await, before);
        ran("x07", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x19_all_own_sandboxes_are_removed_with_their_work_saved() {
    with_bench("", async |bench| {
        let ids: Vec<String> = (0..10).map(|it| format!("all-{it}")).collect();
        let made: Vec<_> = stream::iter(&ids).map(|id| bench.created(id)).buffer_unordered(3).collect().await;
        assert!(made.iter().all(|it| it["created"] == true));
        let rows = bench.rows().await;
        assert_eq!(rows.len(), 10, "{rows:#?}");
        let rooms: Vec<Value> = ids.iter().map(|id| bench.room(key_of(&rows, id))).collect();
        let word = |at: usize, field: &str| rooms[at][field].as_str().unwrap().to_owned();
        for at in [0, 1, 4, 5] {
            let script = format!("echo work {at} > /workspace/worktrees/all-{at}/work");
            bench.tool.engine_says(&["exec", "-u", "10002:10002", &word(at, "name"), "sh", "-c", &script]).await;
        }
        for at in 1..4 {
            bench.tool.engine_says(&["stop", "--time=1", &word(at, "name")]).await;
        }
        // The fifth is known only to the engine; the work of the sixth cannot be saved.
        for dir in ["sandboxes/", "sessions/sbx-"] {
            std::fs::remove_dir_all(bench.tool.state().join(format!("{dir}{}", key_of(&rows, "all-4")))).unwrap();
        }
        std::fs::remove_dir_all(bench.tool.state().join("containers").join(word(4, "name"))).unwrap();
        let in_the_way = bench.tool.state().join("saved").join(word(5, "name"));
        std::fs::create_dir_all(in_the_way.parent().unwrap()).unwrap();
        std::fs::write(&in_the_way, "").unwrap();
        let foreign = bench.foreign(&format!("coracle-sbx-{}", bench.tool.case.name("x")), &[]).await;

        let states = |rows: &[Value]| {
            let mut states: Vec<_> = rows.iter().map(|it| it["state"].as_str().unwrap().to_owned()).collect();
            states.sort();
            states.join(" ")
        };
        let expected = "forgotten running running running running running running stopped stopped stopped";
        assert_eq!(states(&bench.rows().await), expected);
        let first = bench.sandbox(&["remove", "--all"]).await;
        assert_eq!((&first["success"], &first["code"]), (&false.into(), &"teardown_incomplete".into()), "{first:#}");
        let details = &first["details"];
        let count = |of: &str| details[of].as_array().map(Vec::len);
        assert_eq!((count("removed"), count("saved"), count("errors")), (Some(9), Some(3), Some(1)), "{first:#}");
        assert_eq!(details["errors"][0]["code"], "save_failed", "{first:#}");
        let left = bench.rows().await;
        assert_eq!((left.len(), key_of(&left, "all-5")), (1, key_of(&rows, "all-5")));

        std::fs::remove_file(&in_the_way).unwrap();
        let second = bench.sandbox(&["remove", key_of(&rows, "all-5")]).await;
        assert_eq!(
            (&second["success"], second["saved"].as_array().map(Vec::len)),
            (&true.into(), Some(1)),
            "{second:#}"
        );
        let third = bench.sandbox(&["remove", "--all"]).await;
        assert_eq!((&third["success"], &third["removed"]), (&true.into(), &json!([])), "{third:#}");
        for at in 0..10 {
            assert!(!bench.is_there(&word(at, "name")).await, "{at}");
            assert!(!bench.tool.engine(&["volume", "inspect", &word(at, "volume")]).await.0, "{at}");
        }
        assert!(bench.is_there(&foreign).await);
        assert_eq!(bench.tool.engine_says(&["inspect", "--format={{.State.Running}}", &foreign]).await, "true");
        let saved = bench.tool.run(["saved", "list", "--json"], b"").await;
        let saved: Value = serde_json::from_slice(&saved.stdout).unwrap();
        assert_eq!(saved["count"], 4, "{saved:#}");
        ran("x19", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_sandbox_that_is_old_goes_with_its_work_saved_when_another_one_is_made() {
    with_bench("\n[sandbox]\nlifetime = 1\n", async |bench| {
        bench.created("old").await;
        bench.inside("10002:10002", "echo work > /workspace/worktrees/old/work").await;
        let old = bench.container().await;
        assert_eq!(bench.created("old").await["created"], false, "a requested worktree is not removed");
        // Its time passes, by both clocks, of which one counts whole seconds.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        bench.created("young").await;
        assert!(!bench.is_there(&old).await);
        let rows = bench.rows().await;
        assert_eq!((rows.len(), &rows[0]["workflows"]), (1, &json!(["young"])));
        let saved = bench.tool.run(["saved", "list", "--json"], b"").await;
        let saved: Value = serde_json::from_slice(&saved.stdout).unwrap();
        assert_eq!(saved["count"], 1, "{saved:#}");
        let sessions = std::fs::read_dir(bench.tool.state().join("sessions")).unwrap().flatten();
        let reported: String =
            sessions.filter_map(|it| std::fs::read_to_string(it.path().join("events.jsonl")).ok()).collect();
        let ended: Vec<Value> = reported.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        let ended: Vec<_> = ended.iter().filter(|it| it["event"] == "ended").map(|it| &it["reason"]).collect();
        assert_eq!(ended, ["lifetime"], "{reported}");
        let gone = bench.tries(&["diff", "old"]).await;
        assert_eq!(gone["code"], "worktree_missing", "{gone:#}");
    })
    .await;
}

#[tokio::test]
async fn x57_a_sandbox_fetches_from_its_own_repository_without_any_setting() {
    with_bench_of(Given { git: "", ..Given::USUAL }, "", async |bench| {
        bench.server.repository("other", &[("a", "a")]).await;
        let id = bench.id("own");
        bench.created(&id).await;
        let (dir, tool) = (bench.server.dir("web"), &bench.tool);
        let tree = git(&dir, &["rev-parse", "main^{tree}"], "").await;
        let who = ["-c", "user.name=T", "-c", "user.email=t@example.com"];
        let words = [&who[..], &["commit-tree", "-p", "main", "-m", "news", &tree]].concat();
        let news = git(&dir, &words, "").await;
        git(&dir, &["update-ref", &format!("refs/heads/news-{}", tool.case.engine()), &news], "").await;
        let tries = format!(
            "git fetch -q origin 2>&1; echo fetched $?; git rev-parse origin/news-{engine}; \
             git ls-remote {other} >/dev/null 2>&1; echo other $?; \
             git push -q origin HEAD:refs/heads/coracle/{id} 2>&1; echo pushed $?",
            engine = tool.case.engine(),
            other = bench.server.local_url("other"),
        );
        bench.model.then([calls([call("shell_execute", json!({ "command": ["sh", "-c", tries] }))]), says("done")]);
        let (ended_well, events) = bench.works(&id, "Fetch.").await;
        assert!(ended_well, "{events:#?}");
        let printed = events[2]["output"].as_str().unwrap();
        assert!(printed.contains("fetched 0") && printed.contains(&news), "{printed}");
        assert!(printed.contains("other 128"), "{printed}");
        assert!(printed.contains("403") && !printed.contains("pushed 0"), "{printed}");
        // The next sandbox with the same name may have another repository.
        bench.worktree(&["remove", &id]).await;
        let made = bench.worktree(&["create", &bench.server.local_url("other"), "--workflow", &id]).await;
        assert_eq!(made["repository"]["url"], bench.server.local_url("other"), "{made:#}");
        ran("x57", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_port_inside_is_forwarded_by_the_command_line_until_it_is_ended() {
    with_bench("", async |bench| {
        let missing = bench.sandbox(&["forward", "nobody", "80"]).await;
        assert_eq!(missing["code"], "worktree_missing", "{missing:#}");
        bench.created("served").await;
        let free = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
        for wanted in [None, Some(free)] {
            // The process that listens inside is the relay to the proxy.
            let mut words = vec!["sandbox".to_owned(), "forward".into(), "served".into(), "3129".into()];
            words.extend(wanted.into_iter().flat_map(|it| ["--port".to_owned(), it.to_string()]));
            let mut command = bench.tool.command(&words);
            let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let line = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await.unwrap();
            let address = line.unwrap().expect("it tells its address");
            assert!(wanted.is_none_or(|it| address == format!("127.0.0.1:{it}")), "{address}");
            for _ in 0..2 {
                let mut stream = TcpStream::connect(&address).await.unwrap();
                stream
                    .write_all(b"GET /proxy/v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    .await
                    .unwrap();
                let mut got = String::new();
                stream.read_to_string(&mut got).await.unwrap();
                assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
            }
            if wanted.is_some() {
                let taken = bench.sandbox(&["forward", "served", "3129", "--port", &free.to_string()]).await;
                assert_eq!(taken["code"], "invalid_input", "{taken:#}");
            }
            let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            let ended = tokio::time::timeout(Duration::from_secs(20), child.wait()).await.unwrap().unwrap();
            assert!(ended.success());
            eventually("the port is free", Duration::from_secs(5), async || {
                TcpStream::connect(&address).await.is_err()
            })
            .await;
        }
        ran("forward", bench.tool.case.engine());
    })
    .await;
}

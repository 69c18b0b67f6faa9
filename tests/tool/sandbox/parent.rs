//! Operations of an agent on a workflow that it started: result, diff, commands, ports, and applying it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Bench, FILES, fix_turns, with_bench};
use crate::engines::{git, ran};
use crate::servers::model::{held, says};
use crate::tool::eventually;
use crate::tool::mcp::Client;

/// A parent in a session, with the workflow that it started.
struct Parent {
    client: Client,
    workflow: String,
}

impl Parent {
    async fn start(bench: &Bench<'_>, source: &str) -> Self {
        let mut client = Client::start(&mut bench.tool.command(["mcp", "--toolsets", "containers,worktrees"])).await;
        let task = json!({ "prompt": "Fix add.sh.", "source": source });
        let started = client.result("workflow_start", &task).await["structuredContent"].take();
        let workflow = started["value"]["workflow"].as_str().unwrap_or_else(|| panic!("{started:#}")).to_owned();
        Self { client, workflow }
    }

    /// A tool's answer about the workflow.
    async fn call(&mut self, tool: &str, mut arguments: Value) -> Value {
        arguments["workflow"] = self.workflow.as_str().into();
        self.client.result(tool, &arguments).await["structuredContent"].take()
    }

    /// The value of a call that has to succeed.
    async fn value(&mut self, tool: &str, arguments: Value) -> Value {
        let mut answer = self.call(tool, arguments).await;
        assert_eq!(answer["success"], true, "{tool}: {answer:#}");
        answer["value"].take()
    }

    async fn until_it_ends(&mut self) {
        let (mut after, mut state) = (json!(0), json!("running"));
        while state == "running" {
            let mut reported = self.value("workflow_events", json!({ "after": after, "timeout": 30 })).await;
            (after, state) = (reported["next"].take(), reported["state"].take());
        }
        assert_eq!(state, "done");
    }
}

/// A checkout of the repository in the working directory.
async fn checkout(bench: &Bench<'_>) -> String {
    git(bench.tool.work().as_path(), &["clone", "--quiet", &bench.url(), "web"], "").await;
    bench.tool.work().join("web").to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_parent_reads_the_work_of_its_workflow_and_takes_it_over() {
    with_bench("", async |bench| {
        let dir = checkout(bench).await;
        let file = || std::fs::read_to_string(format!("{dir}/add.sh")).unwrap();
        bench.model.then(fix_turns());
        let mut parent = Parent::start(bench, &dir).await;
        parent.until_it_ends().await;

        let result = parent.value("workflow_result", json!({})).await;
        let expected = (&json!("done"), &json!("It adds now, and the test passes."), &json!(0));
        assert_eq!((&result["state"], &result["answer"], &result["uncommitted"]), expected, "{result:#}");
        assert_eq!(result["commits"][0]["subject"], "Add and do not subtract", "{result:#}");
        assert_eq!((&result["usage"]["num_turns"], &result["usage"]["input_tokens"]), (&4.into(), &40.into()));

        let diff = parent.value("workflow_diff", json!({})).await;
        assert!(diff["patch"].as_str().unwrap().contains("+echo $(($1 + $2))"), "{diff:#}");
        let stat = parent.value("workflow_diff", json!({ "stat": true })).await;
        assert_eq!((&stat["patch"], &stat["files"][0]["path"]), (&"".into(), &"add.sh".into()), "{stat:#}");
        for (path, files) in [("add.sh", 1), ("test.sh", 0), (":(exclude)test.sh", 0), ("--output=x", 0)] {
            let one = parent.value("workflow_diff", json!({ "path": path })).await;
            assert_eq!(one["files"].as_array().map(Vec::len), Some(files), "{path}: {one:#}");
        }

        let branch = parent.value("workflow_apply", json!({ "mode": "branch" })).await;
        let there = git(dir.as_ref(), &["rev-parse", branch["branch"].as_str().unwrap()], "").await;
        assert_eq!((there.into(), file()), (result["commits"][0]["commit"].clone(), FILES[0].1.to_owned()));
        let applied = parent.value("workflow_apply", json!({})).await;
        assert_eq!((&applied["files"], file()), (&json!(["add.sh"]), FILES[0].1.replace(" - ", " + ")));
        let twice = parent.call("workflow_apply", json!({})).await;
        assert_eq!(twice["code"], "apply_conflict", "{twice:#}");

        // From now on a container can write there.
        let create = bench.tool.create_call(json!({ "mount_cwd": true }));
        let created = parent.client.result("containers", &create).await;
        assert_eq!(created["structuredContent"]["success"], true, "{created:#}");
        for mode in ["files", "branch"] {
            let refused = parent.call("workflow_apply", json!({ "mode": mode })).await;
            assert_eq!(
                (&refused["code"], &refused["details"]["problems"][0]["rule"]),
                (&"policy_denied".into(), &"apply.bound".into()),
                "{refused:#}"
            );
        }

        bench.worktree(&["remove", &parent.workflow.clone()]).await;
        for tool in ["workflow_result", "workflow_diff", "workflow_apply"] {
            let gone = parent.call(tool, json!({})).await;
            assert_eq!(gone["code"], "worktree_missing", "{tool}: {gone:#}");
        }
        parent.client.end().await;
        ran("parent", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_parent_runs_commands_and_reaches_ports_of_a_workflow_that_still_works() {
    with_bench("", async |bench| {
        let (turn, go) = held(says("done"));
        bench.model.then([turn]);
        let mut parent = Parent::start(bench, &bench.url()).await;
        for tool in ["workflow_result", "workflow_apply"] {
            let early = parent.call(tool, json!({})).await;
            assert_eq!(early["code"], "busy", "{tool}: {early:#}");
            assert!(early["hint"].as_str().unwrap().contains("workflow_events"), "{early:#}");
        }
        let script = "pwd; echo $CORACLE_WORKFLOW; id -u; echo wrong >&2; exit 3";
        let ran_inside = parent.value("workflow_exec", json!({ "command": script })).await;
        let id = &parent.workflow;
        let printed = format!("/workspace/worktrees/{id}\n{id}\n10002\n");
        assert_eq!(
            (&ran_inside["exit_code"], &ran_inside["stdout"], &ran_inside["stderr"]),
            (&3.into(), &printed.into(), &"wrong\n".into()),
            "{ran_inside:#}"
        );
        let late = parent.value("workflow_exec", json!({ "command": ["sleep", "60"], "timeout": 0.5 })).await;
        assert_eq!((&late["timed_out"], &late["tree_ended"]), (&true.into(), &true.into()), "{late:#}");

        // The process that listens inside is the relay to the proxy.
        let forward = json!({ "operation": "forward", "workflow": parent.workflow, "container_port": 3129 });
        let reported = parent.client.result("containers", &forward).await["structuredContent"].take();
        assert_eq!(
            (&reported["workflow"], &reported["container"]),
            (&parent.workflow.as_str().into(), &Value::Null),
            "{reported:#}"
        );
        let address = reported["address"].as_str().unwrap_or_else(|| panic!("{reported:#}")).to_owned();
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"GET /proxy/v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut got = String::new();
        stream.read_to_string(&mut got).await.unwrap();
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
        let both =
            json!({ "operation": "forward", "workflow": parent.workflow, "container": "x", "container_port": 1 });
        let both = parent.client.result("containers", &both).await["structuredContent"].take();
        assert_eq!(both["code"], "conflicting_fields", "{both:#}");

        go.notify_one();
        parent.until_it_ends().await;
        parent.client.end().await;
        let closed = async || TcpStream::connect(&address).await.is_err();
        eventually("the port is closed", Duration::from_secs(5), closed).await;
        ran("parent_exec", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_start_that_fails_leaves_a_shared_sandbox_as_it_was() {
    with_bench("", async |bench| {
        bench.configures("image = \"coracle-test-git:1\"", "image = \"coracle-test-git:1\"\ndomain = \"one\"");
        let id = bench.id("first");
        bench.created(&id).await;
        let before = bench.container().await;
        // As if its last workflow was removed while another one started, which retains the sandbox.
        let sandboxes = std::fs::read_dir(bench.tool.state().join("sandboxes")).unwrap();
        let mut records = sandboxes.map(|it| it.unwrap().path().join("workflows").join(format!("{id}.json")));
        let (record, aside) = (records.find(|it| it.exists()).unwrap(), bench.tool.state().join("aside"));
        std::fs::rename(&record, &aside).unwrap();
        let mut client = Client::start(&mut bench.tool.command(["mcp", "--toolsets", "containers,worktrees"])).await;
        let task = json!({ "prompt": "x", "source": bench.url(), "base": "nowhere" });
        let refused = client.result("workflow_start", &task).await["structuredContent"].take();
        assert_eq!(refused["code"], "base_not_found", "{refused:#}");
        client.end().await;
        assert_eq!(bench.container().await, before);
        let retained = bench.inside("10002:10002", &format!("ls /workspace/worktrees/{id}")).await;
        assert!(retained.contains("add.sh"), "{retained}");
        std::fs::rename(&aside, &record).unwrap();
    })
    .await;
}

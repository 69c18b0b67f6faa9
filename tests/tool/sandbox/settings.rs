//! Engine calls for an existing sandbox, and changes of its settings.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::with_bench;
use crate::engines::ran;
use crate::servers::model::{call, calls, says};
use crate::tool::eventually;
use crate::tool::person::Programs;

#[tokio::test]
async fn x02_a_sandbox_that_is_well_is_neither_made_nor_started_again() {
    with_bench("", async |bench| {
        if !bench.tool.case.engine().has_program() {
            return bench.tool.case.left_out(); // calls of a program are counted
        }
        bench.created("well").await;
        let (kind, log) = (bench.tool.case.engine(), bench.tool.root.path().join("calls"));
        let script = format!("echo \" $* \" >> {}\nexec /usr/bin/{kind} \"$@\"", log.display());
        let programs = Programs::new().with(kind.as_str(), &script);
        let path = format!("engine_path = {:?}\n", programs.path(kind.as_str()));
        bench.configures("engine = ", &format!("{path}engine = "));
        assert_eq!(bench.created("well").await["created"], false);
        let requested = std::fs::read_to_string(&log).unwrap();
        assert!(requested.contains(" inspect "), "a new process looks at the container once: {requested}");
        for verb in [" create ", " start ", " run ", " image ", " images ", " pull ", " build ", " exec "] {
            assert!(!requested.contains(verb), "{verb}: {requested}");
        }
        bench.configures(&path, "");
        ran("x02", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x06_other_settings_wait_for_a_command_that_runs_and_then_make_another_sandbox() {
    with_bench("", async |bench| {
        bench.created("busy").await;
        let before = bench.container().await;
        let sleeps = json!({ "command": ["sleep", "988"], "timeout_seconds": 100 });
        bench.model.then([calls([call("shell_execute", sleeps)])]);
        bench.model.otherwise(says("done"));
        let mut worker = bench.tool.command(["worker", "run", "--worktree", "busy", "--prompt", "x"]);
        let mut worker = worker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let sleeps = async || bench.inside("0:0", "ps | grep -c '[s]leep 988'").await != "0";
        eventually("it sleeps", Duration::from_secs(30), sleeps).await;

        bench.configures("[sandbox.git]", "[sandbox]\npids = 400\n[sandbox.git]");
        let pending = async || {
            let created = bench.created("busy").await;
            created["warnings"].as_array().unwrap().iter().any(|it| it["code"] == "spec_pending")
        };
        assert!(pending().await, "the settings have to wait");
        assert!(sleeps().await, "what runs goes on");
        assert_eq!(bench.container().await, before);

        kill_process(Pid::from_raw(i32::try_from(worker.id().unwrap()).unwrap()).unwrap(), Signal::INT).unwrap();
        tokio::time::timeout(Duration::from_secs(20), worker.wait()).await.unwrap().unwrap();
        assert!(!pending().await, "nothing runs any more");
        assert_ne!(bench.container().await, before);
        ran("x06", bench.tool.case.engine());
    })
    .await;
}

//! A measurement of `cargo xtask bench` that is interrupted leaves no container.

use std::process::Stdio;
use std::time::Duration;

use coracle_types::EngineKind;
use rustix::process::{Pid, Signal, kill_process};

use super::{Tool, eventually, with_rootful_engine};
use crate::engines::{engine_program, skip};

/// Objects of that run on the engine.
async fn made(tool: &Tool<'_>, run: u32) -> String {
    let filter = format!("label=coracle-bench.run={run}");
    tool.engine(&["ps", "--all", "--quiet", "--filter", &filter]).await.1
}

#[tokio::test]
async fn a_measurement_that_is_interrupted_removes_its_containers() {
    with_rootful_engine("", async |tool| {
        if tool.case.engine() == EngineKind::Embedded {
            return tool.case.left_out(); // it compares with an engine's own program
        }
        let built = tool.command([] as [&str; 0]).as_std().get_program().to_owned();
        let example = std::path::Path::new(&built).with_file_name("examples/link_bench");
        if !example.exists() {
            return skip("needs link_bench, which `cargo build --examples` makes");
        }
        let (out, engine) = (tool.work().join("out.json"), tool.case.engine().as_str());
        for signal in [Signal::TERM, Signal::INT] {
            let mut bench = engine_program(example.to_str().unwrap());
            bench.arg(&out).arg(&built).args(["1000", engine]).env("TMPDIR", tool.temp());
            let mut bench = bench
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let run = bench.id().unwrap();
            eventually("it makes containers", Duration::from_secs(60), async || !made(tool, run).await.is_empty())
                .await;
            kill_process(Pid::from_raw(run.cast_signed()).unwrap(), signal).unwrap();
            let ended = tokio::time::timeout(Duration::from_secs(60), bench.wait()).await;
            assert!(!ended.expect("it ends soon").unwrap().success() && !out.exists());
            assert_eq!(made(tool, run).await, "", "{signal:?}");
        }
    })
    .await;
}

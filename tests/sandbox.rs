//! A sandbox in a container, as drivers use it: made ready, tested, commands and files in it (sandbox.md 1).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use coracle_runtime::host::fs::HostPath;
use coracle_runtime::link::wire::Settle;
use coracle_runtime::{Access, ContainerPath, Exit, Link, Mount, NetworkOn};
use coracle_sandbox::provider::{ExecCall, ExecUser, Frame, SandboxProvider, WriteOpts};
use coracle_sandbox::proxy::{Grants, Tokens};
use coracle_sandbox::{
    AGENT, Code, ContainerSandboxProvider, Containers, Domain, Gate, Held, Look, Preparing, ProfileName, Result,
    Sandbox, SandboxDir, SandboxKey, WorkflowId,
};
use futures_util::StreamExt;
use tempfile::TempDir;

use crate::engines::{Case, Running, Way, on_every_engine, ran};

/// One container, which somebody else has made.
#[derive(Debug)]
struct One {
    link: Link,
    id: String,
    discarded: AtomicU32,
}

#[async_trait]
impl Containers for One {
    async fn ensure(&self) -> Result<Held> {
        let (link, id, in_use) = (self.link.clone(), self.id.clone(), Arc::new(()));
        Ok(Held { link, id, image_id: None, generation: 1, recreated: None, in_use })
    }

    async fn look(&self) -> Result<Look> {
        Ok(Look::Answers)
    }

    async fn discard(&self) -> Result<()> {
        self.discarded.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn remove(&self) -> Result<()> {
        Ok(())
    }
}

struct Bench<'a> {
    provider: ContainerSandboxProvider,
    containers: Arc<One>,
    running: Running<'a>,
    _state: TempDir,
}

/// Runs a check with a sandbox whose container is on that network, on every engine.
async fn with_sandbox(network: fn() -> NetworkOn, check: impl AsyncFn(&Bench<'_>, &Case)) {
    on_every_engine(async |case| {
        if case.engine() == coracle_runtime::EngineKind::Container {
            return case.left_out();
        }
        let state = tempfile::tempdir().unwrap();
        let profile = ProfileName::parse("default").unwrap();
        let domain = Domain::Workflow(WorkflowId::parse("one").unwrap());
        let dir = SandboxDir::open(state.path(), &SandboxKey::of(&profile, &domain, "here")).unwrap();
        let running = container(case, &dir.sockets(), network()).await;
        let workdir = "/workspace".to_owned();
        running.link().settle(Settle { uid: AGENT.uid, gid: AGENT.gid, workdir, bound: vec![] }).await.unwrap();
        let (link, id) = (running.link().clone(), running.id.to_string());
        let containers = Arc::new(One { link, id, discarded: AtomicU32::new(0) });
        let gate = Gate::new(dir.clone(), Grants::new(profile.clone(), Tokens::default()), None);
        let preparing = Preparing { home: "/home/agent".into(), ..Preparing::default() };
        let sandbox = Sandbox::new(containers.clone(), dir, profile, preparing);
        let provider = ContainerSandboxProvider::new(sandbox, Arc::new(gate), BTreeMap::new(), "none".into());
        check(&Bench { provider, containers, running, _state: state }, case).await;
    })
    .await;
}

async fn container<'a>(case: &'a Case, sockets: &Path, network: NetworkOn) -> Running<'a> {
    if !case.is_real() {
        return case.runs(Way::Socket).await;
    }
    let mut spec = case.spec("sandbox");
    let (host, at) = (HostPath::open(sockets).unwrap(), ContainerPath::parse("/.coracle/proxy").unwrap());
    spec.mounts.push(Mount { host, at, access: Access::ReadOnly });
    case.run_on(Way::Socket, spec, (&case.image, network)).await
}

fn call(words: &[&str]) -> ExecCall {
    ExecCall { command: words.iter().map(|it| (*it).to_owned()).collect(), ..ExecCall::default() }
}

fn sh(script: &str) -> ExecCall {
    call(&["sh", "-c", script])
}

#[tokio::test]
async fn x12_lines_are_what_was_printed_between_newlines() {
    with_sandbox(
        || NetworkOn::None,
        async |bench, case| {
            let stream = bench.provider.exec_stream(sh(r"printf 'a\r\n\nb'")).await.unwrap();
            let lines: Vec<_> = stream.lines().map(|it| it.unwrap()).collect().await;
            assert_eq!(lines, ["a\r", "", "b"]);
            let failing = bench.provider.exec_stream(sh("echo out; echo no >&2; exit 3")).await.unwrap();
            let mut lines = failing.lines();
            assert_eq!(lines.next().await.unwrap().unwrap(), "out");
            let failure = lines.next().await.unwrap().unwrap_err();
            assert_eq!((failure.code, failure.message.trim()), (Code::CommandFailed, "Command exited with code 3: no"));
            assert!(lines.next().await.is_none());
            ran("x14", case.engine());
        },
    )
    .await;
}

#[tokio::test]
async fn x13_much_goes_in_and_comes_out_on_both_streams_and_the_exit_is_last() {
    with_sandbox(
        || NetworkOn::None,
        async |bench, case| {
            const MUCH: usize = 10 << 20;
            let stdin: Vec<u8> = (0..MUCH).map(|it| (it % 251) as u8).collect();
            let call = ExecCall { stdin: Some(stdin.clone()), ..sh("tee /dev/stderr") };
            let mut frames = bench.provider.exec_stream(call).await.unwrap().frames();
            let (mut out, mut err, mut exits) = (Vec::new(), Vec::new(), Vec::new());
            while let Some(frame) = frames.next().await {
                assert!(exits.is_empty(), "nothing comes after the exit");
                match frame.unwrap() {
                    Frame::Stdout(bytes) => out.extend(bytes),
                    Frame::Stderr(bytes) => err.extend(bytes),
                    Frame::Exit(exit) => exits.push(exit),
                }
            }
            assert_eq!(exits, [Exit::Code(0)]);
            assert!(out == stdin && err == stdin, "{} {}", out.len(), err.len());
            ran("x13", case.engine());
        },
    )
    .await;
}

#[tokio::test]
async fn x16_a_stream_that_is_dropped_or_out_of_time_leaves_no_process() {
    with_sandbox(
        || NetworkOn::None,
        async |bench, case| {
            let left = async || {
                let running = bench.running.link().jobs().await.unwrap();
                running.iter().filter(|it| it.ended_ms.is_none()).count()
            };
            let other = bench.provider.exec_stream(call(&["sleep", "5"])).await.unwrap();
            let dropped = bench.provider.exec_stream(sh("sleep 300 & sleep 300")).await.unwrap();
            let mut frames = dropped.frames();
            let none = tokio::time::timeout(Duration::from_millis(500), frames.next()).await;
            assert!(none.is_err(), "it runs");
            drop(frames);
            let late = ExecCall { timeout: Some(Duration::from_millis(300)), ..sh("sleep 300 & sleep 300") };
            let late = bench.provider.exec_stream(late).await.unwrap().lines().collect::<Vec<_>>().await;
            assert_eq!(late.last().unwrap().as_ref().unwrap_err().code, Code::CommandTimedOut);
            let give_up = tokio::time::Instant::now() + Duration::from_secs(3);
            while left().await > 1 {
                assert!(tokio::time::Instant::now() < give_up, "something goes on");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert_eq!(left().await, 1, "the other command is not disturbed");
            drop(other);
            let somebody = ExecCall { user: ExecUser::Other, ..call(&["true"]) };
            assert_eq!(bench.provider.exec_stream(somebody).await.unwrap_err().code, Code::PolicyDenied);
            ran("x16", case.engine());
        },
    )
    .await;
}

#[tokio::test]
async fn x17_a_file_is_written_whole_or_not_at_all() {
    with_sandbox(
        || NetworkOn::None,
        async |bench, case| {
            let provider = &bench.provider;
            let bytes: Vec<u8> = (0..=255).collect();
            let usual = WriteOpts::default();
            assert_eq!(provider.write_file("/workspace/a/b/file", &bytes, usual).await.unwrap(), 256);
            let read =
                async || provider.exec_stream(call(&["cat", "a/b/file"])).await.unwrap().collect(1024).await.unwrap();
            assert_eq!(read().await, bytes);
            let much = vec![7; (64 << 20) + 1];
            assert_eq!(provider.write_file("/workspace/big", &much[1..], usual).await.unwrap(), 64 << 20);
            let failure = provider.write_file("/workspace/a/b/file", &much, usual).await.unwrap_err();
            assert_eq!((failure.code, read().await), (Code::WriteFailed, bytes));
            for outside in ["/etc/passwd", "/workspace/../etc/x", "/workspace", "relative"] {
                assert_eq!(
                    provider.write_file(outside, b"", usual).await.unwrap_err().code,
                    Code::WriteFailed,
                    "{outside}"
                );
            }
            ran("x17", case.engine());
        },
    )
    .await;
}

#[tokio::test]
async fn x08_a_container_with_another_way_out_is_never_used() {
    with_sandbox(
        || NetworkOn::EngineDefault,
        async |bench, case| {
            if !case.is_real() {
                return; // its guest reaches nothing
            }
            for times in 1..=2 {
                let failure = bench.provider.ensure_running().await.unwrap_err();
                assert_eq!(
                    (failure.code.clone(), bench.containers.discarded.load(Ordering::Relaxed)),
                    (Code::EgressNotEnforced, times),
                    "{failure:?}"
                );
            }
            ran("x08", case.engine());
        },
    )
    .await;
}

//! A sandbox in a container, as drivers use it: started, tested, with commands and files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Dial, GuestStream, Link, LinkSettings, Transport};
use coracle_guest::codec::{self, Frame as Framed};
use coracle_host::fs::HostPath;
use coracle_lifecycle::EndReason;
use coracle_protocol::{EnsureUser, FirstMessage, Hello};
use coracle_proxy::policy::{FixedKey, Grants, ProviderConfig, ProviderKind, Tokens};
use coracle_runtime::{Access, Mount, NetworkAttachment};
use coracle_sandbox::driver::{GenerateRequest, SandboxDriver};
use coracle_sandbox::provider::{ExecCall, ExecUser, Frame, SandboxProvider, Teardown, WriteOpts};
use coracle_sandbox::{
    AGENT, Code, ContainerSandboxProvider, ContainerSource, Domain, Failure, ProxyListeners, Result, RunningContainer,
    Sandbox, SandboxDir, SandboxKey, SandboxLiveness, SandboxProxy, SandboxRecord, Startup, StartupOptions,
};
use coracle_types::{ContainerPath, Exit, ProfileName, Secret, WorkflowId};
use futures_util::StreamExt;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::engines::{Case, Running, Way, on_every_engine, ran};
use crate::servers::model::{ModelServer, says};

/// One existing container.
#[derive(Debug)]
struct One {
    link: Link,
    id: String,
    discarded: AtomicU32,
    /// Number of removals that fail.
    stays: AtomicU32,
}

#[async_trait]
impl ContainerSource for One {
    async fn ensure(&self) -> Result<RunningContainer> {
        Ok(RunningContainer::first(self.link.clone(), self.id.clone()))
    }

    async fn liveness(&self) -> Result<SandboxLiveness> {
        Ok(SandboxLiveness::Ready)
    }

    async fn discard(&self) -> Result<()> {
        self.discarded.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn remove(&self, _: EndReason) -> Result<()> {
        let fails = self.stays.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1)).is_ok();
        if fails { Err(Failure::new(Code::Internal, "The engine did not remove it.")) } else { Ok(()) }
    }
}

struct Bench<'a> {
    provider: ContainerSandboxProvider,
    dir: SandboxDir,
    containers: Arc<One>,
    running: Running<'a>,
    model: ModelServer,
    /// Parts for further providers.
    parts: (Sandbox, Arc<SandboxProxy>),
    _state: TempDir,
}

impl Bench<'_> {
    fn record(&self) -> Option<SandboxRecord> {
        self.dir.record().unwrap()
    }
}

/// Runs a check with a sandbox whose container is on that network, on every engine.
async fn with_sandbox(network: fn() -> NetworkAttachment, check: impl AsyncFn(&Bench<'_>, &Case)) {
    on_every_engine(async |case| {
        if case.engine() == coracle_types::EngineKind::Container {
            return case.left_out();
        }
        let state = tempfile::tempdir().unwrap();
        let profile = ProfileName::parse("default").unwrap();
        let domain = Domain::Workflow(WorkflowId::parse("one").unwrap());
        let dir = SandboxDir::open(state.path(), &SandboxKey::new(&profile, &domain, "here")).unwrap();
        let running = container(case, &dir.sockets(), network()).await;
        let workdir = "/workspace".to_owned();
        running
            .link()
            .ensure_user(EnsureUser { uid: AGENT.uid, gid: AGENT.gid, workdir, bound: vec![] })
            .await
            .unwrap();
        let (link, id) = (running.link().clone(), running.id.to_string());
        let containers = Arc::new(One { link, id, discarded: AtomicU32::new(0), stays: AtomicU32::new(0) });
        let model = ModelServer::start().await;
        let key = Arc::new(FixedKey(Arc::new(Secret::from("sk-canary"))));
        let at = model.url().replace("/proxy/v1", "");
        let asks = ProviderConfig::new(ProviderKind::OpenAi, &at, key, &["scripted".to_owned()]).unwrap();
        let grants = Grants { provider: Some(asks), ..Grants::new(profile.clone(), Tokens::default()) };
        let proxy = Arc::new(SandboxProxy::new(dir.clone(), grants, ProxyListeners::default()));
        let home = Some("/home/agent".to_owned());
        let options = StartupOptions { home, ..StartupOptions::default() };
        let sandbox = Sandbox::new(containers.clone(), Startup::new(dir.clone(), profile, options));
        let parts = (sandbox.clone(), proxy.clone());
        let provider = ContainerSandboxProvider::new(sandbox, proxy, BTreeMap::new(), "none".into());
        check(&Bench { provider, dir, containers, running, model, parts, _state: state }, case).await;
    })
    .await;
}

async fn container<'a>(case: &'a Case, sockets: &Path, network: NetworkAttachment) -> Running<'a> {
    if !case.is_real() {
        return case.runs(Way::Socket).await;
    }
    let mut spec = case.spec("sandbox");
    let (host, at) = (HostPath::open(sockets).unwrap(), ContainerPath::parse("/.coracle/proxy").unwrap());
    spec.mounts.push(Mount { host, at, access: Access::ReadOnly });
    case.run_with_worker(spec, (&case.image, network)).await
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
        || NetworkAttachment::None,
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
async fn x13_large_input_and_output_pass_on_both_streams_and_the_exit_is_last() {
    with_sandbox(
        || NetworkAttachment::None,
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
        || NetworkAttachment::None,
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
            let as_other = ExecCall { user: ExecUser::Other, ..call(&["true"]) };
            assert_eq!(bench.provider.exec_stream(as_other).await.unwrap_err().code, Code::PolicyDenied);
            ran("x16", case.engine());
        },
    )
    .await;
}

#[tokio::test]
async fn x17_a_file_is_written_whole_or_not_at_all() {
    with_sandbox(
        || NetworkAttachment::None,
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
        || NetworkAttachment::EngineDefault,
        async |bench, case| {
            if !case.is_real() {
                return case.left_out(); // its guest reaches nothing
            }
            for times in 1..=2 {
                let failure = bench.provider.ensure_running().await.unwrap_err();
                assert_eq!(
                    (failure.code, bench.containers.discarded.load(Ordering::Relaxed)),
                    (Code::EgressNotEnforced, times),
                    "{failure:?}"
                );
            }
            ran("x08", case.engine());
        },
    )
    .await;
}

#[tokio::test]
async fn x69_runs_with_a_worker_each_are_counted_by_the_proxy_as_any_are() {
    with_sandbox(
        || NetworkAttachment::None,
        async |bench, case| {
            let (sandbox, proxy) = bench.parts.clone();
            let provider = ContainerSandboxProvider::new(sandbox, proxy, BTreeMap::new(), "none".into()).one_shot();
            assert!(!provider.capabilities().persistent_worker && bench.provider.capabilities().persistent_worker);
            if !case.is_real() {
                return case.left_out(); // its guest has no relays, and no program of a worker
            }
            let driver = SandboxDriver::new(Arc::new(provider), "scripted");
            for (run, reported) in [(1, "one"), (2, "two")] {
                bench.model.then([says(reported)]);
                let requested = GenerateRequest { prompt: "canary-prompt".into(), ..GenerateRequest::default() };
                assert_eq!(driver.generate(requested).await.unwrap().content, reported);
                assert_eq!((driver.metered().requests, driver.metered().input_tokens), (run, 10 * run));
                let ready = bench.record().unwrap().ready.unwrap();
                assert_eq!(ready.llm.len(), 0, "its token went with it");
                let left = bench.provider.exec_stream(sh("ls /.coracle/run; ps")).await.unwrap();
                let left = String::from_utf8(left.collect(64 << 10).await.unwrap()).unwrap();
                assert!(!left.contains("prompt-") && !left.contains("coracle/worker "), "{left}");
            }
            ran("x69", case.engine());
        },
    )
    .await;
}

#[tokio::test]
async fn x18_a_teardown_that_failed_says_so_and_the_next_one_finishes() {
    with_sandbox(
        || NetworkAttachment::None,
        async |bench, case| {
            if !case.is_real() {
                return case.left_out(); // its guest has no relays to test
            }
            bench.provider.ensure_running().await.unwrap();
            bench.containers.stays.store(2, Ordering::Relaxed);
            for _ in 0..2 {
                let report = bench.provider.teardown(Teardown::default()).await;
                assert_eq!((report.removed.len(), report.errors.len()), (0, 1), "{report:?}");
                assert_eq!(report.errors[0].code, Code::TeardownIncomplete.word());
                // Nothing that remains has network access.
                assert!(bench.record().is_none_or(|it| it.ready.is_none()));
            }
            let report = bench.provider.teardown(Teardown::default()).await;
            assert_eq!((report.removed.len(), report.errors.len()), (1, 0), "{report:?}");
            assert_eq!(bench.record(), None);
            let again = bench.provider.teardown(Teardown::default()).await;
            assert!(again.errors.is_empty(), "{again:?}");
            ran("x18", case.engine());
        },
    )
    .await;
}

#[tokio::test]
async fn a_port_inside_is_forwarded_until_the_forward_is_dropped() {
    with_sandbox(
        || NetworkAttachment::None,
        async |bench, case| {
            if !case.is_real() {
                return case.left_out(); // its programs are the host's, and so are their ports
            }
            // The process that listens inside is the relay to the proxy.
            let forward = bench.provider.forward(3129).await.unwrap();
            let fetch = async || -> std::io::Result<String> {
                let mut stream = TcpStream::connect(("127.0.0.1", forward.port)).await?;
                stream.write_all(b"GET /proxy/v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
                let mut got = String::new();
                stream.read_to_string(&mut got).await?;
                Ok(got)
            };
            let (one, other) = tokio::join!(fetch(), fetch());
            for got in [one.unwrap(), other.unwrap(), fetch().await.unwrap()] {
                assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
            }
            let unheard = bench.provider.forward(9).await.unwrap();
            let mut refused = TcpStream::connect(("127.0.0.1", unheard.port)).await.unwrap();
            assert_eq!(refused.read(&mut [0; 8]).await.unwrap_or(0), 0, "nothing listens there");
            let give_up = tokio::time::Instant::now() + Duration::from_secs(20);
            let port = forward.port;
            drop(forward);
            while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                assert!(tokio::time::Instant::now() < give_up, "the port stays");
            }
        },
    )
    .await;
}

/// A guest that sends its greeting and reads nothing more.
#[derive(Debug)]
struct Stuck;

#[async_trait]
impl Dial for Stuck {
    async fn dial(&self) -> coracle_types::Result<GuestStream> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        tokio::spawn(async move {
            let (mut from, mut to) = tokio::io::split(theirs);
            let Ok(Some(Framed { head: FirstMessage::Hello(hello), .. })) =
                codec::read::<FirstMessage>(&mut from).await
            else {
                return;
            };
            let mut bytes = Vec::new();
            Framed::new(0, FirstMessage::Hello(Hello::of_guest(hello.nonce, "a run".into()))).write_to(&mut bytes);
            to.write_all(&bytes).await.unwrap();
            std::future::pending::<()>().await;
        });
        let (reader, writer) = tokio::io::split(ours);
        Ok(GuestStream::plain(reader, writer, Transport::InProcess))
    }
}

#[tokio::test(start_paused = true)]
async fn x10_a_container_that_is_not_ready_in_time_is_taken_away() {
    let state = tempfile::tempdir().unwrap();
    let profile = ProfileName::parse("default").unwrap();
    let key = SandboxKey::new(&profile, &Domain::Workflow(WorkflowId::parse("one").unwrap()), "here");
    let dir = SandboxDir::open(state.path(), &key).unwrap();
    let link = Link::new(Arc::new(Stuck), LinkSettings::default());
    let (discarded, stays) = (AtomicU32::new(0), AtomicU32::new(0));
    let containers = Arc::new(One { link, id: "it".into(), discarded, stays });
    let sandbox = Sandbox::new(containers.clone(), Startup::new(dir.clone(), profile, StartupOptions::default()));
    for times in 1..=3 {
        let failure = sandbox.ensure().await.unwrap_err();
        assert_eq!(
            (&failure.code, &failure.details["step"]),
            (&Code::SandboxNotReady, &"relays".into()),
            "{failure:?}"
        );
        assert_eq!(containers.discarded.load(Ordering::Relaxed), times);
        assert_eq!(dir.record().unwrap().and_then(|it| it.ready), None);
    }
    assert_eq!(sandbox.ensure().await.unwrap_err().code, Code::SandboxUnavailable);
}

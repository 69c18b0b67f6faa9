use std::path::PathBuf;

use tempfile::TempDir;
use tokio::io::AsyncReadExt;

use super::*;
use crate::Container;
use crate::protocol::workspace::WorkspaceOp;
use crate::protocol::{EnsureUser, ExecTimeouts, FileRef, Lifetime, OutputMode, PutSecret};

fn worker() -> OpenWorkerSocket {
    OpenWorkerSocket { worker: (10_001, 10_001), agent: (10_002, 10_002), root: "/workspace".into() }
}

fn supervisor() -> (Arc<Supervisor>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("workspace")).unwrap();
    let (container, reaper) = Container::new(dir.path(), Vec::new()).unwrap();
    tokio::spawn(reaper.run());
    (Supervisor::new(Arc::new(container), dir.path()), dir)
}

fn exec(cwd: &str, secret: u32) -> ExecRequest {
    ExecRequest {
        job: "0badcafe".into(),
        shell: false,
        words: 0,
        env: 0,
        secret,
        bare: false,
        files: Vec::new(),
        inside: false,
        user: UserSpec::Name("root".into()),
        cwd: cwd.into(),
        stdin: false,
        terminal: None,
        limits: ExecTimeouts { total_ms: None, silence_ms: None, grace_ms: 0 },
        life: Lifetime::Foreground,
        show: OutputMode::Nothing,
        cut: 0,
        most: None,
    }
}

fn at(path: &str) -> FileRef {
    FileRef { user: UserSpec::Name("root".into()), path: path.into(), follow: true }
}

#[tokio::test]
async fn whatever_a_worker_asks_is_asked_as_the_agent_beneath_the_root() {
    let (supervisor, _dir) = supervisor();
    let agent = UserSpec::Ids { uid: 10_002, gid: Some(10_002) };
    for cwd in ["/workspace", "/workspace/", "//workspace/a/b"] {
        let narrowed = narrowed(&supervisor, Request::Exec(exec(cwd, 0)), &worker()).unwrap();
        assert_eq!(narrowed, Request::Exec(ExecRequest { user: agent.clone(), inside: true, ..exec(cwd, 0) }));
    }
    let space = |root: &str| {
        Request::Space(WorkspaceRequest {
            user: UserSpec::Name("root".into()),
            root: root.into(),
            act: WorkspaceOp::Touched,
            bytes: 0,
        })
    };
    let Request::Space(asked) = narrowed(&supervisor, space("/workspace/a"), &worker()).unwrap() else { panic!() };
    assert_eq!(asked.user, agent);
    for path in ["/", "/workspaces", "/workspace/../etc", "/workspace/./a", "workspace", "", "/etc"] {
        for ask in [space(path), Request::Exec(exec(path, 0))] {
            assert_eq!(narrowed(&supervisor, ask, &worker()).unwrap_err().code, ErrorCode::Denied, "{path}");
        }
    }
}

#[tokio::test]
async fn what_is_the_hosts_alone_is_denied_and_its_jobs_are_not_there() {
    let (supervisor, _dir) = supervisor();
    let secret = PutSecret { name: "x".into(), uid: 10_001, gid: 10_001, mode: 0o400, bytes: 0, lent: true };
    let settle = EnsureUser { uid: 10_002, gid: 10_002, workdir: "/".into(), bound: vec![] };
    let denied = [
        Request::Exec(exec("/workspace", 1)),
        Request::Worker(worker()),
        Request::Session { bytes: 0 },
        Request::Secret(secret),
        Request::Settle(settle),
        Request::Jobs,
        Request::Stat(at("/workspace")),
        Request::Get { at: at("/workspace/x"), offset: 0, limit: 1 },
        Request::Put { at: at("/workspace/x"), mode: None, exact: false, parents: false, replace: true },
        Request::Remove { at: at("/workspace"), recursive: true },
    ];
    for ask in denied {
        let told = format!("{ask:?}");
        assert_eq!(narrowed(&supervisor, ask, &worker()).unwrap_err().code, ErrorCode::Denied, "{told}");
    }
    // One of the host's runs, and is as unknown as one that never was.
    let words =
        crate::jobs::table::Words { words: vec![b"/bin/sleep".to_vec(), b"60".to_vec()], env: vec![], secret: None };
    let user =
        UserSpec::Ids { uid: rustix::process::geteuid().as_raw(), gid: Some(rustix::process::getegid().as_raw()) };
    let begun = supervisor.jobs.begin(&ExecRequest { user, ..exec("/workspace", 0) }, words).await.unwrap();
    // In an empty directory there is no such program, which changes nothing of what is asked below.
    drop(begun);
    for job in ["0badcafe", "12345678"] {
        let ask = Request::CancelJob { job: job.into(), grace_ms: 0 };
        assert_eq!(narrowed(&supervisor, ask, &worker()).unwrap_err().code, ErrorCode::NoJob);
    }
    supervisor.end_all(Duration::ZERO).await;
}

#[tokio::test]
async fn one_worker_is_let_in_and_nobody_else_gets_a_word() {
    let (supervisor, dir) = supervisor();
    for bad in [
        OpenWorkerSocket { worker: (0, 0), ..worker() },
        OpenWorkerSocket { agent: (10_002, 0), ..worker() },
        OpenWorkerSocket { root: "/".into(), ..worker() },
        OpenWorkerSocket { root: "/workspace/..".into(), ..worker() },
    ] {
        assert_eq!(open(&supervisor, bad).unwrap_err().code, ErrorCode::Invalid);
    }
    for _ in 0..2 {
        assert_eq!(open(&supervisor, worker()).unwrap().0, GuestMessage::Answer(CallReply::Done));
    }
    let other = OpenWorkerSocket { root: "/workspace/other".into(), ..worker() };
    assert_eq!(open(&supervisor, other).unwrap_err().code, ErrorCode::Exists);
    let socket: PathBuf = dir.path().join(SOCKET);
    let meta = std::fs::metadata(&socket).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    if rustix::process::geteuid().is_root() {
        // This test is root and no worker.
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0);
    }
}

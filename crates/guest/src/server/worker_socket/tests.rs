use std::path::PathBuf;

use tempfile::TempDir;
use tokio::io::AsyncReadExt;

use super::*;
use crate::Container;
use crate::protocol::call::{Call, CallInfo};
use crate::protocol::workspace::{WorkspaceOp, WorkspaceRequest};
use crate::protocol::{
    CancelJob, ExecRequest, ExecTimeouts, GetFile, Lifetime, ListJobs, OutputMode, PutFile, PutSecret, RemoveFile,
    SetSession, StatFile, UserSpec,
};
use crate::server::dispatch::{authorize, check_scope};

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

fn exec(cwd: &str) -> ExecRequest {
    ExecRequest {
        job: "0badcafe".into(),
        shell: false,
        argv: vec![(*b"/bin/sleep").into()],
        env: Vec::new(),
        secret: None,
        clear_env: false,
        files: Vec::new(),
        from_container: false,
        user: UserSpec::Name("root".into()),
        cwd: cwd.into(),
        stdin: false,
        terminal: None,
        limits: ExecTimeouts { total_ms: None, silence_ms: None, grace_ms: 0 },
        life: Lifetime::Foreground,
        show: OutputMode::Nothing,
        inline_limit: 0,
        max_running: None,
    }
}

fn authorized<C: Call>(supervisor: &Supervisor, mut request: C) -> Result<C, RpcError> {
    authorize(&mut request, &worker(), supervisor).map(|()| request)
}

#[tokio::test]
async fn a_workers_requests_run_as_the_agent_beneath_the_root() {
    let (supervisor, _dir) = supervisor();
    let agent = UserSpec::Ids { uid: 10_002, gid: Some(10_002) };
    for cwd in ["/workspace", "/workspace/", "//workspace/a/b"] {
        let authorized = authorized(&supervisor, exec(cwd)).unwrap();
        assert_eq!(authorized, ExecRequest { user: agent.clone(), from_container: true, ..exec(cwd) });
    }
    let workspace = |root: &str| WorkspaceRequest {
        user: UserSpec::Name("root".into()),
        root: root.into(),
        act: WorkspaceOp::Touched,
    };
    assert_eq!(authorized(&supervisor, workspace("/workspace/a")).unwrap().user, agent);
    for path in ["/", "/workspaces", "/workspace/../etc", "/workspace/./a", "workspace", "", "/etc"] {
        assert_eq!(authorized(&supervisor, workspace(path)).unwrap_err().code, ErrorCode::Denied, "{path}");
        assert_eq!(authorized(&supervisor, exec(path)).unwrap_err().code, ErrorCode::Denied, "{path}");
    }
    for refused in [
        ExecRequest { secret: Some((*b"x").into()), ..exec("/workspace") },
        ExecRequest { files: vec!["x".into()], ..exec("/workspace") },
    ] {
        assert_eq!(authorized(&supervisor, refused).unwrap_err().code, ErrorCode::Denied);
    }
}

#[tokio::test]
async fn a_worker_may_not_make_calls_of_the_host_or_see_its_jobs() {
    let (supervisor, _dir) = supervisor();
    let caller = Caller::Worker(Arc::new(worker()));
    let denied = [
        CallInfo::new::<OpenWorkerSocket>(),
        CallInfo::new::<SetSession>(),
        CallInfo::new::<PutSecret>(),
        CallInfo::new::<crate::protocol::EnsureUser>(),
        CallInfo::new::<ListJobs>(),
        CallInfo::new::<StatFile>(),
        CallInfo::new::<GetFile>(),
        CallInfo::new::<PutFile>(),
        CallInfo::new::<RemoveFile>(),
    ];
    for call in denied {
        assert_eq!(check_scope(&caller, &call).unwrap_err().code, ErrorCode::Denied, "{}", call.name);
        assert_eq!(check_scope(&Caller::Root, &call), Ok(()));
    }
    assert_eq!(check_scope(&caller, &CallInfo::new::<ExecRequest>()), Ok(()));
    // A job of the host is reported like one that does not exist.
    let user =
        UserSpec::Ids { uid: rustix::process::geteuid().as_raw(), gid: Some(rustix::process::getegid().as_raw()) };
    let started = supervisor.jobs.start(ExecRequest { user, ..exec("/workspace") }).await.unwrap();
    // The directory is empty, so the program does not exist, which does not matter below.
    drop(started);
    for job in ["0badcafe", "12345678"] {
        let cancel = CancelJob { job: job.into(), grace_ms: 0 };
        assert_eq!(authorized(&supervisor, cancel).unwrap_err().code, ErrorCode::NoJob);
    }
    supervisor.end_all(Duration::ZERO).await;
}

#[tokio::test]
async fn only_one_worker_gets_access_and_other_users_none() {
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
        assert_eq!(open(&supervisor, worker()), Ok(()));
    }
    let other = OpenWorkerSocket { root: "/workspace/other".into(), ..worker() };
    assert_eq!(open(&supervisor, other).unwrap_err().code, ErrorCode::Exists);
    let socket: PathBuf = dir.path().join(SOCKET);
    let meta = std::fs::metadata(&socket).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    if rustix::process::geteuid().is_root() {
        // This test runs as root, which is not the worker.
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0);
    }
}

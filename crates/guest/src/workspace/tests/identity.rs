//! User ids of threads. Tests that need root are skipped without it.

use std::os::unix::fs::chown;
use std::sync::Barrier;

use rustix::process::geteuid;

use super::*;
use crate::Container;
use crate::os::blocking::run_blocking;
use crate::protocol::UserSpec;
use crate::server::services::Supervisor;

/// More threads than have started by then, so that some are new.
const THREADS: usize = 4;

#[tokio::test]
async fn a_thread_that_starts_after_a_write_does_not_have_its_user() {
    if !geteuid().is_root() {
        return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
    }
    let world = World::new();
    world.file("a", "old");
    for path in [world.path(""), world.path("a")] {
        chown(path, Some(61_234), Some(61_235)).unwrap();
    }
    fs::set_permissions(world.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (container, _reaper) = Container::new(world.dir.path(), Vec::new()).unwrap();
    let supervisor = Supervisor::new(Arc::new(container), world.dir.path());
    let written = run_blocking(move || {
        let (how, executable, seen, tool) = (OpenMode::Overwrite, None, false, "write_file".into());
        let operation = WorkspaceOp::Write { path: "a".into(), content: (*b"new").into(), how, executable, seen, tool };
        let user = UserSpec::Ids { uid: 61_234, gid: Some(61_235) };
        let request = WorkspaceRequest { user, root: "/ws".into(), act: operation };
        supervisor.workspaces.execute(&*supervisor.machine, request, &CancelFlag::default())
    });
    assert!(matches!(written.await.unwrap(), Ok(WorkspaceReply::Written(_))));
    assert_eq!(world.has("a"), "new");
    let together = Arc::new(Barrier::new(THREADS));
    let threads = (0..THREADS).map(|_| {
        let together = together.clone();
        tokio::task::spawn_blocking(move || {
            together.wait();
            geteuid().is_root()
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        assert!(thread.await.unwrap());
    }
}

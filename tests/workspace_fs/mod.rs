//! The contract of every [`GuestFs`]: one function a property, on the fake and on real engines.

/// Asserts that a call failed so.
macro_rules! fails {
    ($call:expr, $pattern:pat) => {{
        let done = $call.await;
        assert!(matches!(done, Err($pattern)), "{}: {done:?}", stringify!($call));
    }};
}

mod files;
mod finding;
mod links;
mod snapshots;

use coracle_types::{Command, ContainerPath, Exec, Exit, Ids};
use coracle_workspace::GuestFs;

use crate::content::image::with_git;
use crate::engines::{Case, Running, Way, on_every_engine};

const AGENT: Ids = Ids { uid: 1000, gid: 1000 };

/// A user's workspace, and a shell in it for things that no file operation does.
struct Space<'a> {
    running: &'a Running<'a>,
    user: Ids,
    fs: GuestFs,
}

impl<'a> Space<'a> {
    /// An empty one, in a directory of the user's.
    async fn new(running: &'a Running<'a>, name: &str) -> Self {
        let real = running.case.is_real();
        let owns = if real { format!("busybox chown -R 1000:1000 {name}") } else { "true".into() };
        let script = format!("mkdir -p spaces/{name}/ws && cd spaces && {owns}");
        running.printed(Exec::new(Command::Shell(script), Ids::ROOT, ContainerPath::root())).await;
        let user = if real { AGENT } else { Ids::ROOT };
        let fs = GuestFs::new(running.link().clone(), user, path(&format!("/spaces/{name}/ws")));
        // On the fake, no passwd file has the user's home.
        let fs = if real { fs } else { fs.with_home(path("/home/agent")) };
        Self { running, user, fs }
    }

    /// The same files through another handle.
    fn again(&self) -> GuestFs {
        GuestFs::new(self.running.link().clone(), self.user, self.fs.root().clone())
    }

    /// The output of the user's script, from the root of the workspace.
    async fn sh(&self, script: &str) -> String {
        let exec = Exec::new(Command::Shell(script.into()), self.user, self.fs.root().clone());
        let it = self.running.ran(exec).await;
        assert_eq!(it.exit, Exit::Code(0), "{script}: {it:?}");
        it.stdout.text()
    }
}

fn path(text: &str) -> ContainerPath {
    ContainerPath::parse(text).unwrap()
}

/// A container with the host's git, whose user has a home.
async fn prepared(case: &Case) -> Running<'_> {
    if !case.is_real() {
        // Its programs are the host's.
        return case.runs(Way::Socket).await;
    }
    let running = with_git(case).await;
    let owns = Command::Shell("busybox chown 1000:1000 /home/agent".into());
    running.printed(Exec::new(owns, Ids::ROOT, ContainerPath::root())).await;
    running
}

/// Runs a check on every engine, in a container with git.
async fn with_git_inside(check: impl AsyncFn(&Running<'_>)) {
    on_every_engine(async |case| {
        if case.engine() == coracle_types::EngineKind::Container {
            return case.left_out();
        }
        check(&prepared(case).await).await;
    })
    .await;
}

//! A caller's content in a container, on real engines: files, repositories, dotfiles, setup commands. The fake has no
//! users, and is tested in the crate itself.

mod clones;
mod files;
pub(crate) mod image;
mod setup;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coracle_provision::{StepContext, Workspace, prepare};
use coracle_types::{Command, ContainerPath, Exec, Ids};
use tokio_util::sync::CancellationToken;

use crate::engines::Running;

/// The exec user of these tests.
const AGENT: Ids = Ids { uid: 1000, gid: 1000 };

fn path(text: &str) -> ContainerPath {
    ContainerPath::parse(text).unwrap()
}

/// A container at the time when the caller's files and commands are provisioned.
async fn place(running: &Running<'_>) -> StepContext {
    let workdir = path("/workspace");
    let workspace = Workspace { path: workdir.clone(), bound: false, binds: vec![] };
    // Its home belongs to root in this image.
    sh(running, "busybox chown 1000:1000 /home/agent").await;
    let prepared = prepare(&running.inside, AGENT, &workspace).await.unwrap();
    let env = |home: &str| BTreeMap::from([("HOME".to_owned(), home.to_owned())]);
    StepContext {
        link: running.link().clone(),
        user: AGENT,
        user_env: env(prepared.home.as_str()),
        home: prepared.home,
        workdir,
        bound: false,
        rootless: false,
        root_env: env("/root"),
        clone_timeout: Duration::from_secs(180),
        timeout: Duration::from_secs(180),
        deadline: Instant::now() + Duration::from_secs(300),
        grace: Duration::from_millis(500),
        cancel: CancellationToken::new(),
    }
}

/// The output of root's script.
async fn sh(running: &Running<'_>, script: &str) -> String {
    running.printed(Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())).await
}

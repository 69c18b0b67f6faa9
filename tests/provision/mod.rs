//! Copies the user's identity into a container.

mod certs;
mod git;
mod secrets;
mod session;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coracle_provision::{StepContext, StepReport};
use coracle_types::{Command, ContainerPath, Exec, Exit, Ids};
use tokio_util::sync::CancellationToken;

use crate::engines::Running;

/// The user of most commands of agents.
const AGENT: Ids = Ids { uid: 1000, gid: 1000 };

fn path(text: &str) -> ContainerPath {
    ContainerPath::parse(text).unwrap()
}

/// A container for provisioning steps. The fake has one user, whose home is `/root`.
async fn place(running: &Running<'_>) -> StepContext {
    let (user, home) = if running.case.is_real() { (AGENT, "/home/agent") } else { (Ids::ROOT, "/root") };
    if running.case.is_real() {
        // Its home belongs to root in this image.
        root(running, "busybox chown 1000:1000 /home/agent").await;
    }
    StepContext {
        link: running.link().clone(),
        user,
        home: path(home),
        workdir: ContainerPath::root(),
        bound: false,
        rootless: false,
        user_env: BTreeMap::new(),
        root_env: BTreeMap::new(),
        clone_timeout: Duration::from_secs(60),
        timeout: Duration::from_secs(60),
        deadline: Instant::now() + Duration::from_secs(120),
        grace: Duration::from_millis(500),
        cancel: CancellationToken::new(),
    }
}

/// The output of root's script.
async fn root(running: &Running<'_>, script: &str) -> String {
    running.printed(Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())).await
}

/// The output of the exec user's script, which must succeed.
async fn sh(place: &StepContext, script: &str) -> String {
    let exec = place.exec(Command::Shell(script.into()), &place.home, Duration::from_secs(30));
    let it = place.link.exec(exec).await.unwrap();
    assert_eq!((it.exit, it.stderr.text().as_str()), (Exit::Code(0), ""), "{it:?}");
    it.stdout.text()
}

async fn content(place: &StepContext, file: &str) -> Vec<u8> {
    place.link.get(place.at(&path(file)), 0, 1 << 20).await.unwrap().1
}

async fn put(place: &StepContext, file: &str, text: &str) {
    let content = coracle_types::Input::Bytes(text.as_bytes().to_vec());
    let at = place.at(&path(file));
    let put = coracle_client::WriteFile { at, mode: Some(0o644), exact: true, parents: true, replace: true, content };
    place.link.put(put).await.unwrap();
}

/// Name and result of each part of a step.
fn items(step: &StepReport) -> Vec<String> {
    let one = |it: &coracle_provision::ReportItem| format!("{} {:?}", it.name, it.status).to_lowercase();
    step.items.iter().map(one).collect()
}

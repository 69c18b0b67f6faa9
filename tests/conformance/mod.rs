//! One contract for every implementation: each check runs on the fake and on every engine that was named.

mod api;
mod exec;
mod files;
mod fork;
mod images;
mod lifecycle;
mod limits;
mod networks;
mod output;
mod ports;
mod recent;
mod stacks;

use coracle_runtime::{CreateSpec, NetworkAttachment, Placed, Policy, admit};
use coracle_types::{Command, ContainerId, ContainerPath, Exec, ExecOutput, Exit, Ids};

use crate::engines::Case;

pub(crate) use images::import;

/// A spec of that case, placed on its image and the engine's default network under a policy that allows everything.
pub(crate) fn placed(case: &Case, spec: CreateSpec) -> Placed {
    on_network(case, spec, NetworkAttachment::EngineDefault)
}

fn on_network(case: &Case, spec: CreateSpec, network: NetworkAttachment) -> Placed {
    admit(spec, &Policy::everything()).unwrap().with_image(case.image.clone(), network)
}

/// A container that runs.
async fn running(case: &Case) -> ContainerId {
    let id = case.runtime.create(&placed(case, case.spec("c"))).await.unwrap();
    case.runtime.start(&id).await.unwrap();
    id
}

fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())
}

fn argv(words: &[&str]) -> Exec {
    let words = words.iter().copied().map(str::to_owned).collect();
    Exec::new(Command::Argv(words), Ids::ROOT, ContainerPath::root())
}

fn path(text: &str) -> ContainerPath {
    ContainerPath::parse(text).unwrap()
}

async fn ran(case: &Case, id: &ContainerId, exec: Exec) -> ExecOutput {
    case.runtime.exec(id, exec).await.unwrap()
}

/// The output of a script, which must succeed.
async fn printed(case: &Case, id: &ContainerId, script: &str) -> String {
    let it = ran(case, id, sh(script)).await;
    assert_eq!((it.exit, it.stderr.text().as_str()), (Exit::Code(0), ""), "{script}");
    it.stdout.text()
}

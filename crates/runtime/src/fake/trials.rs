//! What the tests of the fake engine begin with.

use std::time::Duration;

use super::{FakeRuntime, LOCAL_IMAGE};
use crate::{
    Command, ContainerId, ContainerName, ContainerPath, ContainerRuntime, CreateSpec, Exec, Ids, ImageAct, ImageRef,
    NetworkOn, Placed, Policy, admit,
};

/// A container on the local image, placed under a policy that allows everything.
pub(super) async fn placed(fake: &FakeRuntime, name: &str) -> Placed {
    let image = ImageRef::parse(LOCAL_IMAGE).unwrap();
    let found = fake.image(ImageAct::Find(vec![image.clone()])).await.unwrap();
    let spec = CreateSpec::new(ContainerName::parse(name).unwrap(), image);
    admit(spec, &Policy::everything()).unwrap().on(found[0].id.clone(), NetworkOn::EngineDefault)
}

/// An engine with a running container. Three calls: create, start, and the look for the image before them.
pub(super) async fn running() -> (FakeRuntime, ContainerId) {
    let fake = FakeRuntime::new();
    let id = fake.create(&placed(&fake, "c").await).await.unwrap();
    fake.start(&id).await.unwrap();
    (fake, id)
}

pub(super) fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())
}

pub(super) const AT_ONCE: Duration = Duration::ZERO;

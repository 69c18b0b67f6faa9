//! What the tests of the fake engine begin with.

use std::time::Duration;

use super::{FakeRuntime, LOCAL_IMAGE};
use crate::policy::PatternSet;
use crate::{
    ByteSize, Command, ContainerId, ContainerName, ContainerPath, ContainerRuntime, CreateSpec, Exec, Ids, ImageAct,
    ImageRef, NetworkOn, Placed, Policy, admit,
};

/// A container on the local image, placed under a policy that allows everything.
pub(super) async fn placed(fake: &FakeRuntime, name: &str) -> Placed {
    let image = ImageRef::parse(LOCAL_IMAGE).unwrap();
    let found = fake.image(ImageAct::Find(image.clone())).await.unwrap();
    let spec = CreateSpec::new(ContainerName::parse(name).unwrap(), image);
    admit(spec, &everything()).unwrap().on(found[0].id.clone(), NetworkOn::EngineDefault)
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

fn everything() -> Policy {
    Policy {
        allow_roots: vec!["/".into()],
        home: "/nowhere".into(),
        denied: vec![],
        scratch: "/nowhere".into(),
        binds: true,
        memory_max: ByteSize(u64::MAX),
        cpus_max: None,
        pids_max: u32::MAX,
        port_min: 0,
        ports_bind: [127, 0, 0, 1].into(),
        allow_host_network: true,
        allow_host_gateway: true,
        allow_gpu: true,
        allow_root: true,
        open_network: true,
        images: PatternSet::new(&["*".into()]).unwrap(),
    }
}

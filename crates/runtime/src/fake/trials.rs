//! Fixtures for the tests of the fake engine.

use std::time::Duration;

use coracle_types::{Command, ContainerId, ContainerPath, Exec, Ids};

use super::FakeRuntime;
use crate::Placed;

/// A container on the local image, placed under a policy that allows everything.
pub(super) async fn placed(fake: &FakeRuntime, name: &str) -> Placed {
    fake.placed(name, None).await
}

/// An engine with a running container. Three calls: create, start, and the look for the image before them.
pub(super) async fn running() -> (FakeRuntime, ContainerId) {
    let fake = FakeRuntime::new();
    let id = fake.runs("c").await;
    (fake, id)
}

pub(super) fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())
}

pub(super) const AT_ONCE: Duration = Duration::ZERO;

//! Containers that cannot be reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::Link;
use coracle_lifecycle::EndReason;
use coracle_proxy::policy::{Grants, Tokens};
use coracle_runtime::fake::{FakeRuntime, Reply};
use coracle_types::{Command, ContainerPath, Exec, Exit, Ids, ProfileName};

use super::*;
use crate::record::SandboxDir;
use crate::{Code, ContainerSource, Domain, Failure, Result, RunningContainer, SandboxKey, SandboxLiveness};

/// One that was made for another way to its proxy.
#[derive(Debug)]
struct OnNoNetwork {
    link: Link,
    spec_pending: bool,
    discarded: AtomicU32,
}

#[async_trait]
impl ContainerSource for OnNoNetwork {
    async fn ensure(&self) -> Result<RunningContainer> {
        let mut running = RunningContainer::first(self.link.clone(), "a".into());
        running.info.spec_pending = self.spec_pending;
        Ok(running)
    }

    async fn liveness(&self) -> Result<SandboxLiveness> {
        Ok(SandboxLiveness::Ready)
    }

    async fn discard(&self) -> Result<()> {
        self.discarded.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn remove(&self, _: EndReason) -> Result<()> {
        Ok(())
    }
}

/// The failure of a try to use it by a network, and whether it was discarded.
async fn tried(link: &Link, spec_pending: bool) -> (Failure, bool) {
    let state = tempfile::tempdir().unwrap();
    let profile = ProfileName::parse("default").unwrap();
    let dir = SandboxDir::open(state.path(), &SandboxKey::new(&profile, &Domain::Named("a".into()), "here")).unwrap();
    let proxy =
        SandboxProxy::new(dir.clone(), Grants::new(profile.clone(), Tokens::default()), ProxyListeners::default())
            .by(Transport::Tcp);
    let containers = Arc::new(OnNoNetwork { link: link.clone(), spec_pending, discarded: AtomicU32::new(0) });
    let startup = Startup::new(dir, profile, StartupOptions::default()).with_proxy(Arc::new(proxy));
    let failure = Sandbox::new(containers.clone(), startup).ensure().await.unwrap_err();
    (failure, containers.discarded.load(Ordering::Relaxed) > 0)
}

#[tokio::test]
async fn another_way_to_the_proxy_replaces_no_container_in_use() {
    let fake = FakeRuntime::new();
    let (_, link) = fake.runs_guest("c").await;
    let (failure, discarded) = tried(&link, true).await;
    assert_eq!((failure.code, discarded), (Code::ProxyUnreachable, false));
    assert!(failure.hint.unwrap().contains("proxy.transport"));
    let (failure, discarded) = tried(&link, false).await;
    assert_eq!((failure.code, discarded), (Code::ProxyUnreachable, true), "it is of no use to anybody");

    fake.replies("work", [Reply::new(Exit::Code(0), "", "").after(Duration::from_secs(3600))]);
    let work = Exec::new(Command::Shell("work".into()), Ids::ROOT, ContainerPath::root());
    link.start(work, None).await.unwrap();
    assert!(!tried(&link, false).await.1, "it is in use");
}

//! The network that one sandbox is alone on with this host, where its proxy is reached by one (`proxy.transport = "tcp"`).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_lifecycle::{OwnNetwork as Found, SlotNetwork, destroy_network, ensure_slot_network, find_slot_network};
use coracle_runtime::{ContainerId, ContainerName, Handle, NetworkName};
use coracle_sandbox::{Between, SandboxDir};

use crate::context::Context;
use crate::failure::Failure;

/// Made with its container, and gone with it.
#[derive(Clone, Debug)]
pub(super) struct OwnNetwork {
    session: ContainerName,
    /// One without a way out, and one for who has every way out anyway.
    names: [NetworkName; 2],
    /// There is such a file as long as there may be such a network: engines are asked for nothing otherwise.
    mark: PathBuf,
    /// That of a start of a container: while it runs nobody can remove the network, and another start may be on another.
    known: Arc<Mutex<Option<(Start, Between)>>>,
}

/// One start of a container, by its generation.
type Start = (ContainerId, u32);

impl OwnNetwork {
    pub(super) fn of(cx: &Context, dir: &SandboxDir, session: &ContainerName) -> Result<Self, Failure> {
        let mark = dir.root().join("network");
        let named = |more: &str| NetworkName::parse(format!("{}-{session}{more}", cx.config.label_namespace));
        Ok(Self { session: session.clone(), names: [named("")?, named("-open")?], mark, known: Arc::default() })
    }

    fn known(&self) -> MutexGuard<'_, Option<(Start, Between)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It, made if it is not there.
    pub(super) async fn ensure(&self, cx: &Context, internal: bool) -> Result<NetworkName, Failure> {
        std::fs::write(&self.mark, "").map_err(Failure::internal)?;
        let runtime = cx.runtime().await?;
        let name = if internal { &self.names[0] } else { &self.names[1] };
        let new = SlotNetwork { name: name.clone(), slot: self.session.clone(), internal };
        ensure_slot_network(&*runtime, &cx.store()?, &new).await?;
        Ok(name.clone())
    }

    /// The one that this start of a container is on. `None` when it is on none of them, or the engine does not tell its
    /// addresses.
    pub(super) async fn between(&self, cx: &Context, start: Start) -> Result<Option<Between>, Failure> {
        if let Some((of, known)) = &*self.known()
            && *of == start
        {
            return Ok(Some(*known));
        }
        let (runtime, store) = (cx.runtime().await?, cx.store()?);
        let container = runtime.inspect(&Handle::from(&start.0)).await?;
        let Some(name) = self.names.iter().find(|it| container.networks.iter().any(|on| on == it.as_str())) else {
            return Ok(None);
        };
        let found = find_slot_network(&*runtime, &store, (name, &self.session)).await?;
        let between = found.as_ref().and_then(between);
        *self.known() = between.map(|it| (start, it));
        Ok(between)
    }

    /// Nobody is on it any more.
    pub(super) async fn remove(&self, cx: &Context) -> Result<(), Failure> {
        *self.known() = None;
        if !self.mark.exists() {
            return Ok(());
        }
        let (runtime, store) = (cx.runtime().await?, cx.store()?);
        for name in &self.names {
            if let Some(network) = find_slot_network(&*runtime, &store, (name, &self.session)).await? {
                destroy_network(&*runtime, &store, &network).await?;
            }
        }
        std::fs::remove_file(&self.mark).map_err(Failure::internal)
    }
}

/// This host's address of the family that every container has.
fn between(network: &Found) -> Option<Between> {
    let gateway = *network.gateways.iter().find(|it| it.is_ipv4())?;
    let subnet = *network.subnets.iter().find(|it| it.contains(&gateway))?;
    Some(Between { gateway, subnet })
}

#[cfg(test)]
mod tests {
    use coracle_runtime::fake::LOCAL_IMAGE;
    use coracle_runtime::{CreateSpec, ImageAct, ImageRef, NetworkAttachment, admit};
    use coracle_sandbox::{Domain, ProfileName, SandboxKey};

    use super::*;

    async fn on(cx: &Context, name: &str, network: NetworkAttachment) -> ContainerId {
        let runtime = cx.runtime().await.unwrap();
        let image = ImageRef::parse(LOCAL_IMAGE).unwrap();
        let found = runtime.image(ImageAct::Find(vec![image.clone()])).await.unwrap();
        let spec = CreateSpec::new(ContainerName::parse(name).unwrap(), image);
        let placed = admit(spec, &cx.policy().unwrap()).unwrap().with_image(found[0].id.clone(), network);
        runtime.create(&placed).await.unwrap()
    }

    #[tokio::test]
    async fn the_address_of_this_host_is_that_of_the_network_that_the_container_is_on() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        let runtime = cx.runtime().await.unwrap();
        let key = SandboxKey::of(&ProfileName::parse("default").unwrap(), &Domain::Named("a".into()), "local");
        let its = SandboxDir::open(dir.path(), &key).unwrap();
        let own = OwnNetwork::of(&cx, &its, &ContainerName::parse("sbx-0a").unwrap()).unwrap();
        let walled = own.ensure(&cx, true).await.unwrap();
        let open = own.ensure(&cx, false).await.unwrap();
        let alone = on(&cx, "alone", NetworkAttachment::None).await;
        assert_eq!(own.between(&cx, (alone.clone(), 1)).await.unwrap(), None, "made for another way to its proxy");
        let first = on(&cx, "first", NetworkAttachment::Id(open.to_string())).await;
        let there = own.between(&cx, (first.clone(), 1)).await.unwrap().unwrap();
        assert!(there.subnet.contains(&there.gateway));
        assert_eq!(own.between(&cx, (alone, 1)).await.unwrap(), None, "what is known of one is not said of another");
        // Another process made it anew.
        let other = OwnNetwork { known: Arc::default(), ..own.clone() };
        assert_eq!(own.between(&cx, (first.clone(), 1)).await.unwrap(), Some(there));
        runtime.remove(&first).await.unwrap();
        other.remove(&cx).await.unwrap();
        other.ensure(&cx, true).await.unwrap();
        let second = on(&cx, "second", NetworkAttachment::Id(walled.to_string())).await;
        assert_eq!(own.between(&cx, (second, 1)).await.unwrap(), Some(there));
        assert!(own.between(&cx, (first, 2)).await.is_err(), "it is looked at anew");
    }
}

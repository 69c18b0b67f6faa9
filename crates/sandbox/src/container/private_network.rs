//! The network that one sandbox shares with this host alone, if its proxy is reached by one (`proxy.transport = "tcp"`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_lifecycle::{NetworkOwner, NewNetwork, OwnNetwork, Result, create_network, destroy_network, slot_networks};
use coracle_proxy::listen::PrivateSubnet;
use coracle_types::{ContainerId, ContainerName, Handle, NetworkName};

use crate::Failure;
use crate::services::SandboxServices;

/// Created with its container, and removed with it.
#[derive(Clone, Debug)]
pub(super) struct PrivateNetwork {
    services: SandboxServices,
    session: ContainerName,
    /// The network without a way out, and the one for containers that have every way out anyway.
    names: [NetworkName; 2],
    /// The subnet of one start of a container: it stays while that runs, and another start may be on another network.
    known: Arc<Mutex<Option<KnownSubnet>>>,
}

/// The subnet of one start of a container.
#[derive(Clone, Debug)]
struct KnownSubnet {
    container: ContainerId,
    generation: u64,
    subnet: PrivateSubnet,
}

impl PrivateNetwork {
    pub(super) fn new(services: &SandboxServices, session: &ContainerName) -> crate::Result<Self> {
        let namespace = services.store.signer().namespace();
        let named =
            |suffix: &str| NetworkName::parse(format!("{namespace}-{session}{suffix}")).map_err(Failure::internal);
        let names = [named("")?, named("-open")?];
        Ok(Self { services: services.clone(), session: session.clone(), names, known: Arc::default() })
    }

    fn known(&self) -> MutexGuard<'_, Option<KnownSubnet>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the network if it is missing.
    pub(super) async fn ensure(&self, internal: bool) -> Result<NetworkName> {
        let runtime = self.services.engines.preferred().await?;
        let name = if internal { &self.names[0] } else { &self.names[1] };
        let new = NewNetwork { name: name.clone(), owner: NetworkOwner::Slot(self.session.clone()), internal };
        create_network(&*runtime, &self.services.store, &new).await?;
        Ok(name.clone())
    }

    /// The subnet that this start of a container is on. `None` if it is on no such network, or the engine reports no
    /// addresses.
    pub(super) async fn subnet(&self, id: &ContainerId, generation: u64) -> Result<Option<PrivateSubnet>> {
        if let Some(known) = &*self.known()
            && known.container == *id
            && known.generation == generation
        {
            return Ok(Some(known.subnet));
        }
        let runtime = self.services.engines.preferred().await?;
        let container = runtime.inspect(&Handle::from(id)).await?;
        let all = slot_networks(&*runtime, &self.services.store, &self.session).await?;
        let subnet = all.iter().find(|it| container.networks.contains(&it.name)).and_then(private_subnet);
        *self.known() = subnet.map(|subnet| KnownSubnet { container: id.clone(), generation, subnet });
        Ok(subnet)
    }

    /// Removes it. No container uses it any more.
    pub(super) async fn remove(&self) -> Result<()> {
        *self.known() = None;
        let (runtime, store) = (self.services.engines.preferred().await?, &self.services.store);
        for network in slot_networks(&*runtime, store, &self.session).await? {
            destroy_network(&*runtime, store, &network).await?;
        }
        Ok(())
    }
}

/// The address of this host is of the family that every container has.
fn private_subnet(network: &OwnNetwork) -> Option<PrivateSubnet> {
    let gateway = *network.gateways.iter().find(|it| it.is_ipv4())?;
    let subnet = *network.subnets.iter().find(|it| it.contains(&gateway))?;
    Some(PrivateSubnet { gateway, subnet })
}

#[cfg(test)]
mod tests {
    use coracle_runtime::fake::{FakeRuntime, LOCAL_IMAGE};
    use coracle_runtime::{ContainerRuntime as _, CreateSpec, ImageStore as _, NetworkAttachment, Policy, admit};
    use coracle_types::ImageRef;

    use super::*;
    use crate::services::test_support::services;

    async fn create(runtime: &FakeRuntime, name: &str, network: NetworkAttachment) -> ContainerId {
        let image = ImageRef::parse(LOCAL_IMAGE).unwrap();
        let found = runtime.find_images(std::slice::from_ref(&image)).await.unwrap();
        let spec = CreateSpec::new(ContainerName::parse(name).unwrap(), image);
        let placed = admit(spec, &Policy::everything()).unwrap().with_image(found[0].id.clone(), network);
        runtime.create(&placed).await.unwrap()
    }

    #[tokio::test]
    async fn the_address_of_this_host_is_that_of_the_network_that_the_container_is_on() {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let services = services(dir.path(), &runtime);
        let session = ContainerName::parse("sbx-0a").unwrap();
        let own = PrivateNetwork::new(&services, &session).unwrap();
        let walled = own.ensure(true).await.unwrap();
        let open = own.ensure(false).await.unwrap();
        let alone = create(&runtime, "alone", NetworkAttachment::None).await;
        assert_eq!(own.subnet(&alone, 1).await.unwrap(), None, "created for another way to its proxy");
        let first = create(&runtime, "first", NetworkAttachment::Id(open.to_string())).await;
        let there = own.subnet(&first, 1).await.unwrap().unwrap();
        assert!(there.subnet.contains(&there.gateway));
        assert_eq!(own.subnet(&alone, 1).await.unwrap(), None, "the subnet of one container is not another's");
        // Another process creates it again.
        let other = PrivateNetwork { known: Arc::default(), ..own.clone() };
        assert_eq!(own.subnet(&first, 1).await.unwrap(), Some(there));
        runtime.remove(&first).await.unwrap();
        other.remove().await.unwrap();
        other.ensure(true).await.unwrap();
        let second = create(&runtime, "second", NetworkAttachment::Id(walled.to_string())).await;
        assert_eq!(own.subnet(&second, 1).await.unwrap(), Some(there));
        assert!(own.subnet(&first, 2).await.is_err(), "another generation is inspected again");
    }
}

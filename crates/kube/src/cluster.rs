//! State that all operations share: the client, the namespace and the settings.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use coracle_runtime::Image;
use coracle_types::{ContainerId, ImageId, Result};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use tokio::sync::OnceCell;

use crate::client::Address;
use crate::lost_nodes::LostNodes;
use crate::registry::Registry;
use crate::settings::KubeSettings;

/// A cluster that is spoken to.
pub(crate) struct Cluster {
    pub(crate) settings: KubeSettings,
    pub(crate) address: Address,
    pub(crate) registry: Registry,
    pub(crate) lost_nodes: LostNodes,
    client: OnceCell<Client>,
    /// Names of Pods, by their container's id. Only a hint: each use checks that the Pod still has that id.
    pods: Mutex<BTreeMap<ContainerId, String>>,
    /// Images that were looked up, by id: Kubernetes pulls an image by a name, and a container refers to it by id.
    images: Mutex<BTreeMap<ImageId, (String, Image)>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("server", &self.address.server).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(crate) fn open(settings: KubeSettings) -> Result<Self> {
        let address = Address::read(&settings)?;
        let registry = Registry::new(&settings);
        let (lost_nodes, client, pods, images) = Default::default();
        Ok(Self { settings, address, registry, lost_nodes, client, pods, images })
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.address.namespace
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        self.client.get_or_try_init(|| self.address.client()).await.cloned()
    }

    /// Accesses objects of one kind in the namespace.
    pub(crate) async fn api<K>(&self) -> Result<Api<K>>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Ok(Api::namespaced(self.client().await?, self.namespace()))
    }

    pub(crate) fn remember_pod(&self, id: &ContainerId, name: &str) {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), name.to_owned());
    }

    pub(crate) fn forget_pod(&self, id: &ContainerId) {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    pub(crate) fn known_pod(&self, id: &ContainerId) -> Option<String> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Caches an image with the name by which nodes pull it.
    pub(crate) fn remember_image(&self, name: &str, image: &Image) {
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        images.insert(image.id.clone(), (name.to_owned(), image.clone()));
    }

    /// Returns the cached image of that id, and the name by which nodes pull it.
    pub(crate) fn known_image(&self, id: &ImageId) -> Option<(String, Image)> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

impl Cluster {
    /// The address of this cluster and namespace in records.
    pub(crate) fn endpoint(&self) -> String {
        format!("{}/namespaces/{}", self.address.server, self.address.namespace)
    }
}

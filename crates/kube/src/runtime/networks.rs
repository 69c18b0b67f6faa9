//! The networks of a cluster.

use async_trait::async_trait;
use coracle_runtime::{LabelFilter, Network, NetworkCreate, Networks};
use coracle_types::{Capability, Error, NetworkName, Result};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};

use super::KubeRuntime;
use crate::cluster::Cluster;
use crate::error::{api_error, is_conflict, is_not_found, refusal};
use crate::find::{is_present, list_pods};
use crate::names::{CORACLE, MANAGED_BY, NETWORK_LABEL, object_name};
use crate::network::{network, policy, service};
use crate::retry::{READ, WRITE, retry};
use crate::unsupported::unsupported;

const VERB: &str = "network";

/// Attempts to create a Service while that of a removed network has the name.
const ATTEMPTS: usize = 3;

#[async_trait]
impl Networks for KubeRuntime {
    async fn find_network(&self, name: &NetworkName) -> Result<Option<Network>> {
        let policies = self.cluster().api::<NetworkPolicy>().await?;
        let object = object_name(name.as_str());
        match retry(VERB, READ, || policies.get(&object)).await? {
            Ok(it) => Ok(network(&it).filter(|it| it.name == name.as_str())),
            Err(err) if is_not_found(&err) => Ok(None),
            Err(err) => Err(api_error(VERB, err)),
        }
    }

    async fn list_networks(&self, filter: &LabelFilter) -> Result<Vec<Network>> {
        let policies = self.cluster().api::<NetworkPolicy>().await?;
        let params = ListParams::default().labels(&format!("{MANAGED_BY}={CORACLE}"));
        let found = retry(VERB, READ, || policies.list(&params)).await?.map_err(|err| api_error(VERB, err))?;
        Ok(found.items.iter().filter_map(network).filter(|it| filter.admits(&it.labels)).collect())
    }

    async fn create_network(&self, create: &NetworkCreate) -> Result<Network> {
        if !create.reach {
            return Err(unsupported(Capability::PartedNetwork));
        }
        let unreadable = |err: serde_json::Error| Error::Unreadable { verb: VERB, detail: err.to_string() };
        let policy = policy(create).map_err(unreadable)?;
        let cluster = self.cluster();
        let (policies, params) = (cluster.api::<NetworkPolicy>().await?, PostParams::default());
        let made = match retry(VERB, WRITE, || policies.create(&params, &policy)).await? {
            Err(err) if is_conflict(&err) => return Err(Error::NetworkTaken(create.name.clone())),
            made => made.map_err(|err| api_error(VERB, err))?,
        };
        let service = service(create, &made).map_err(unreadable)?;
        if let Err(err) = create_service(cluster, &service).await {
            let _ = remove(cluster, &object_name(create.name.as_str())).await;
            return Err(err);
        }
        network(&made).ok_or_else(|| Error::Unreadable { verb: VERB, detail: "the policy lost its annotations".into() })
    }

    async fn remove_network(&self, handle: &str) -> Result<()> {
        let object = object_name(handle);
        let members = format!("{MANAGED_BY}={CORACLE},{NETWORK_LABEL}={object}");
        let members = list_pods(self.cluster(), &members).await?;
        if let Some(member) = members.iter().find(|it| is_present(it)).and_then(|it| it.metadata.name.as_ref()) {
            return Err(refusal(VERB, &format!("`{member}` is on the network")));
        }
        remove(self.cluster(), &object).await
    }
}

async fn create_service(cluster: &Cluster, service: &Service) -> Result<()> {
    let (services, params) = (cluster.api::<Service>().await?, PostParams::default());
    let name = service.metadata.name.clone().unwrap_or_default();
    for _ in 0..ATTEMPTS {
        match retry(VERB, WRITE, || services.create(&params, service)).await? {
            // The Service of a removed network: the cluster would remove it soon, and this network would have no names.
            Err(err) if is_conflict(&err) => remove_service(cluster, &name).await?,
            made => return made.map(drop).map_err(|err| api_error(VERB, err)),
        }
    }
    Err(refusal(VERB, &format!("the namespace has another Service `{name}`: give the network another name")))
}

/// The policy is the network. If this process ends between the two requests, the cluster removes the Service, which the
/// policy owns.
async fn remove(cluster: &Cluster, object: &str) -> Result<()> {
    let params = DeleteParams::default();
    let policies = cluster.api::<NetworkPolicy>().await?;
    absent(retry(VERB, WRITE, || policies.delete(object, &params)).await?)?;
    remove_service(cluster, object).await
}

/// Deletes the Service of a network. One of that name that Coracle did not create is not deleted.
async fn remove_service(cluster: &Cluster, name: &str) -> Result<()> {
    let services = cluster.api::<Service>().await?;
    let found = retry(VERB, READ, || services.get_opt(name)).await?.map_err(|err| api_error(VERB, err))?;
    let is_ours =
        |it: &Service| it.metadata.labels.as_ref().and_then(|it| it.get(MANAGED_BY)).is_some_and(|it| it == CORACLE);
    let Some(service) = found.filter(is_ours) else { return Ok(()) };
    let preconditions = Preconditions { uid: service.metadata.uid, resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match retry(VERB, WRITE, || services.delete(name, &params)).await? {
        // Another Service has the name by now.
        Err(err) if is_conflict(&err) => Ok(()),
        deleted => absent(deleted),
    }
}

/// A missing object is no error.
fn absent<T>(deleted: Result<T, kube::Error>) -> Result<()> {
    match deleted {
        Err(err) if !is_not_found(&err) => Err(api_error(VERB, err)),
        _ => Ok(()),
    }
}

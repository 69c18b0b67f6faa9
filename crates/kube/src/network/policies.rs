//! The policies of Pods on no named network, created before the first of them.

use coracle_runtime::NetworkAttachment;
use coracle_types::Result;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::PostParams;

use super::objects::{alone, nothing};
use crate::cluster::Cluster;
use crate::error::{api_error, is_conflict, refusal};
use crate::names::object_name;
use crate::retry::{WRITE, retry};

/// Creates the policy for Pods of this network. Whether the cluster enforces it cannot be determined from here.
///
/// # Errors
/// [`Error::Engine`] for a named network that does not exist.
pub(crate) async fn ensure_policy(cluster: &Cluster, network: &NetworkAttachment) -> Result<()> {
    let policies = cluster.api::<NetworkPolicy>().await?;
    let policy = match network {
        NetworkAttachment::Id(id) => {
            let name = object_name(id);
            let found = retry("network", WRITE, || policies.get_metadata_opt(&name)).await?;
            return match found.map_err(|err| api_error("network", err))? {
                Some(_) => Ok(()),
                None => Err(refusal("create", &format!("there is no network `{id}`"))),
            };
        }
        NetworkAttachment::Host => return Ok(()),
        NetworkAttachment::None => nothing(),
        NetworkAttachment::EngineDefault | NetworkAttachment::Alone => alone(),
    };
    let name = policy.metadata.name.clone().unwrap_or_default();
    let found = retry("network", WRITE, || policies.get_metadata_opt(&name)).await?;
    if found.map_err(|err| api_error("network", err))?.is_some() {
        return Ok(());
    }
    let params = PostParams::default();
    match retry("network", WRITE, || policies.create(&params, &policy)).await? {
        // Another process was faster.
        Err(err) if is_conflict(&err) => Ok(()),
        made => made.map(drop).map_err(|err| api_error("network", err)),
    }
}

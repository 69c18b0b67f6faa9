//! Deletes the claim of a container.

use coracle_types::{ContainerId, Result};
use kube::api::{DeleteParams, ListParams};

use super::objects::{ClaimSpec, ClaimStatus, claims, objects};
use crate::cluster::Cluster;
use crate::error::{api_error, is_not_found};
use crate::names::{CORACLE, ID_LABEL, MANAGED_BY, id_label};
use crate::retry::{READ, WRITE, retry};

/// Deletes it, if there is one. The cluster removes Sandbox and Pod without being waited for.
pub(crate) async fn release(cluster: &Cluster, id: &ContainerId) -> Result<()> {
    let api = objects::<ClaimSpec, ClaimStatus>(cluster, &claims()).await?;
    let params = ListParams::default().labels(&format!("{MANAGED_BY}={CORACLE},{ID_LABEL}={}", id_label(id.as_str())));
    let found = match retry("remove", READ, || api.list_metadata(&params)).await? {
        // The kind was removed from the cluster, with all claims.
        Err(err) if is_not_found(&err) => return Ok(()),
        found => found.map_err(|err| api_error("remove", err))?,
    };
    for claim in found.items {
        delete_claim(cluster, claim.metadata.name.as_deref().unwrap_or_default()).await?;
    }
    Ok(())
}

/// A missing claim is no error.
pub(super) async fn delete_claim(cluster: &Cluster, name: &str) -> Result<()> {
    let api = objects::<ClaimSpec, ClaimStatus>(cluster, &claims()).await?;
    let params = DeleteParams::background();
    match retry("remove", WRITE, || api.delete(name, &params)).await? {
        Err(err) if !is_not_found(&err) => Err(api_error("remove", err)),
        _ => Ok(()),
    }
}

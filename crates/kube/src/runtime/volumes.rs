//! Named volumes: claims that a storage class of the cluster fills.

use std::collections::BTreeMap;

use async_trait::async_trait;
use coracle_runtime::{LabelFilter, Volume, VolumeCreate, Volumes};
use coracle_types::{ByteSize, Error, Result};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams};

use super::KubeRuntime;
use crate::error::{api_error, is_conflict, is_not_found, refusal};
use crate::find::{is_present, list_pods};
use crate::names::{CORACLE, LABELS, MANAGED_BY, NAME, is_label, object_name};
use crate::retry::{READ, WRITE, retry};

const VERB: &str = "volume";

/// Default size of a volume.
const DEFAULT_SIZE: ByteSize = ByteSize::mib(10 << 10);

#[async_trait]
impl Volumes for KubeRuntime {
    async fn list_volumes(&self, filter: &LabelFilter) -> Result<Vec<Volume>> {
        let claims = self.cluster().api::<PersistentVolumeClaim>().await?;
        let params = ListParams::default().labels(&format!("{MANAGED_BY}={CORACLE}"));
        let found = retry(VERB, READ, || claims.list(&params)).await?.map_err(|err| api_error(VERB, err))?;
        let present = found.items.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
        Ok(present.map(volume).filter(|it| filter.admits(&it.labels)).collect())
    }

    async fn create_volume(&self, create: &VolumeCreate) -> Result<Volume> {
        let claims = self.cluster().api::<PersistentVolumeClaim>().await?;
        let wanted = claim(create).map_err(|err| Error::Unreadable { verb: VERB, detail: err.to_string() })?;
        let (params, name) = (PostParams::default(), object_name(create.name.as_str()));
        let made = match retry(VERB, WRITE, || claims.create(&params, &wanted)).await? {
            Err(err) if is_conflict(&err) => retry(VERB, READ, || claims.get(&name)).await?,
            made => made,
        };
        made.map(|it| volume(&it)).map_err(|err| api_error(VERB, err))
    }

    async fn remove_volume(&self, name: &str) -> Result<()> {
        let claims = self.cluster().api::<PersistentVolumeClaim>().await?;
        let (name, params) = (object_name(name), DeleteParams::default());
        let ours = list_pods(self.cluster(), &format!("{MANAGED_BY}={CORACLE}")).await?;
        if let Some(user) = ours.iter().find(|it| is_present(it) && uses(it, &name)) {
            let user = user.metadata.name.as_deref().unwrap_or_default();
            return Err(refusal(VERB, &format!("`{user}` uses the volume")));
        }
        match retry(VERB, WRITE, || claims.delete(&name, &params)).await? {
            Err(err) if !is_not_found(&err) => Err(api_error(VERB, err)),
            _ => Ok(()),
        }
    }
}

fn uses(pod: &Pod, claim: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|it| it.volumes.iter().flatten());
    volumes.filter_map(|it| it.persistent_volume_claim.as_ref()).any(|it| it.claim_name == claim)
}

fn claim(create: &VolumeCreate) -> serde_json::Result<PersistentVolumeClaim> {
    let all: BTreeMap<_, _> = create.labels.iter().cloned().collect();
    let annotations = [(NAME, create.name.to_string()), (LABELS, serde_json::to_string(&all)?)];
    let selected = all.iter().filter(|(key, value)| is_label(key, value));
    let mut labels: BTreeMap<_, _> = selected.map(|(key, value)| (key.clone(), value.clone())).collect();
    labels.insert(MANAGED_BY.to_owned(), CORACLE.to_owned());
    let size = create.size.unwrap_or(DEFAULT_SIZE);
    let requests = [("storage".to_owned(), Quantity(size.0.to_string()))];
    Ok(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(object_name(create.name.as_str())),
            labels: Some(labels),
            annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            resources: Some(VolumeResourceRequirements { requests: Some(requests.into()), limits: None }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    })
}

fn volume(claim: &PersistentVolumeClaim) -> Volume {
    let annotation = |name: &str| claim.metadata.annotations.as_ref().and_then(|it| it.get(name));
    let name = annotation(NAME).or(claim.metadata.name.as_ref());
    Volume {
        name: name.cloned().unwrap_or_default(),
        labels: annotation(LABELS).and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default(),
        created: claim.metadata.creation_timestamp.as_ref().map(|it| it.0.to_string()).unwrap_or_default(),
    }
}

//! The volume of a container that is being made.

use std::collections::BTreeMap;

use coracle_runtime::{Access, ContainerPath, VolumeAct, VolumeMount, VolumeName, random_hex};

use super::Making;
use crate::record::OwnVolume;
use crate::volume::is_its;
use crate::{Error, Kind, Result};

impl Making<'_> {
    /// Makes a volume that goes with the container. It is in the record before the engine hears of it, so that it goes
    /// whatever happens.
    ///
    /// # Errors
    /// Anything that an engine refuses, and a volume of that name that is not ours.
    pub async fn make_volume(&mut self, at: ContainerPath) -> Result<VolumeMount> {
        let (runtime, store) = (self.runtime, self.store);
        let record = self.record();
        let name = format!("{}-work-{}", store.signer().namespace(), random_hex::<8>());
        let name = VolumeName::parse(name).expect("a namespace and hex digits are a name");
        let own = [
            ("managed", "true".to_owned()),
            ("role", record.role.as_str().to_owned()),
            ("session", record.session.clone()),
            ("name", name.to_string()),
            ("created", record.created.to_string()),
        ];
        let mut labels: BTreeMap<_, _> = own.into_iter().map(|(key, it)| (store.signer().key(key), it)).collect();
        store.signer().sign(runtime.kind(), &mut labels);
        self.has_volume(OwnVolume { name: name.clone(), at: at.clone() })?;
        let labels = labels.into_iter().collect();
        let made = runtime.volume(VolumeAct::Create { name: name.clone(), labels, size: None }).await?;
        if made.iter().any(|it| is_its(runtime, store, it)) {
            return Ok(VolumeMount { name, at, access: Access::ReadWrite });
        }
        Err(Error::NotManaged { kind: Kind::Volume, name: name.to_string() })
    }
}

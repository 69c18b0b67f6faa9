//! The volume of a container that is being created.

use coracle_runtime::{Access, VolumeMount};
use coracle_types::{ContainerPath, VolumeName, random_hex};

use super::Creation;
use crate::Result;
use crate::record::OwnVolume;
use crate::volume::{NewVolume, create};

impl Creation<'_> {
    /// Creates a volume that is removed with the container. It is recorded first, so that it is removed even if this
    /// process dies.
    ///
    /// # Errors
    /// Anything that an engine refuses, and an existing volume with that name that is not Coracle's.
    pub async fn make_volume(&mut self, at: ContainerPath) -> Result<VolumeMount> {
        let (runtime, store) = (self.runtime, self.store);
        let record = self.record();
        let name = format!("{}-work-{}", store.signer().namespace(), random_hex::<8>());
        let name = VolumeName::parse(name).expect("a namespace and hex digits are a name");
        let labels = vec![("session", record.session.clone())];
        let role = record.role.as_str();
        self.record_volume(OwnVolume { name: name.clone(), at: at.clone() })?;
        create(runtime, store, NewVolume { name: &name, role, labels, size: None }).await?;
        Ok(VolumeMount { name, at, access: Access::ReadWrite })
    }
}

//! The volume of a container that is being made.

use coracle_runtime::{Access, VolumeMount};
use coracle_types::{ContainerPath, VolumeName, random_hex};

use super::Creation;
use crate::Result;
use crate::record::OwnVolume;
use crate::volume::{NewVolume, create};

impl Creation<'_> {
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
        let labels = vec![("session", record.session.clone())];
        let role = record.role.as_str();
        self.has_volume(OwnVolume { name: name.clone(), at: at.clone() })?;
        create(runtime, store, NewVolume { name: &name, role, labels, size: None }).await?;
        Ok(VolumeMount { name, at, access: Access::ReadWrite })
    }
}

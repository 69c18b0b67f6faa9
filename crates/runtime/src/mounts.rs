//! What a container's binds have to be: compared before its guest runs the first command.

use std::time::Duration;

use async_trait::async_trait;
use coracle_client::Mounts;
use coracle_host::fs::{HostPath, HostPathError};
use coracle_protocol::{MountIdentity, paths};
use coracle_types::{ContainerId, Error, Result};

use crate::{Container, ContainerRuntime, MountPoint};

/// The binds of one container of an engine.
#[derive(Clone, Debug)]
pub struct ContainerMounts<R> {
    /// The engine.
    pub runtime: R,
    /// The container.
    pub id: ContainerId,
}

#[async_trait]
impl<R: ContainerRuntime> Mounts for ContainerMounts<R> {
    async fn expected(&self) -> Result<Vec<MountIdentity>> {
        let container = self.runtime.inspect(&(&self.id).into()).await?;
        mount_identities(&container)
    }

    async fn end_container(&self) {
        if let Err(err) = self.runtime.stop(&self.id, Duration::ZERO).await {
            // Its guest stays locked, so nothing runs there.
            tracing::warn!(id = self.id.short(), %err, "a container with a changed mount cannot be ended");
        }
    }
}

/// The binds of a container, with the present file of each source. An engine that starts the container later has to
/// mount these.
///
/// # Errors
/// [`Error::MountChanged`] if a link is on the way to a source, or the source is missing.
pub fn mount_identities(container: &Container) -> Result<Vec<MountIdentity>> {
    let (mut identities, mut changed) = (Vec::new(), Vec::new());
    for mount in container.mounts.iter().filter(|mount| is_compared(mount)) {
        match HostPath::open(&mount.source) {
            Ok(source) if source.real() == mount.source => {
                let identity = source.identity().map_err(|err| unreadable(mount, err))?;
                let target = mount.target.clone();
                identities.push(MountIdentity { target, device: identity.device, inode: identity.inode });
            }
            Ok(_) | Err(HostPathError::NotFound(_) | HostPathError::Special(_)) => {
                changed.push(mount.source.display().to_string());
            }
            Err(err) => return Err(unreadable(mount, std::io::Error::other(err))),
        }
    }
    // Docker lists mounts in another order each time.
    identities.sort_by(|a, b| a.target.cmp(&b.target));
    if changed.is_empty() { Ok(identities) } else { Err(Error::MountChanged { targets: changed }) }
}

/// Directories of Coracle's own are out of reach of every container.
fn is_compared(mount: &MountPoint) -> bool {
    let is_own = mount.target.strip_prefix(paths::DIR).is_some_and(|rest| rest.starts_with('/'));
    mount.is_bind && !is_own
}

fn unreadable(mount: &MountPoint, source: std::io::Error) -> Error {
    Error::Host { what: format!("cannot look at `{}`, which is mounted", mount.source.display()), source }
}

//! A container that stopped, started again.

use std::time::Duration;

use coracle_runtime::mount_identities;
use coracle_types::Error as Engine;

use crate::record::RecordedMount;
use crate::{Links, ManagedContainer, Result, Store, protected_paths};

/// Starts a stopped container and gives it as it is now.
///
/// The engine resolves the paths of all its binds again, those of protected paths included, and code that ran inside may have
/// put a link in the place of one. So each has to lead where it led when it was admitted, before the start; what is mounted
/// is compared before the guest runs anything.
///
/// # Errors
/// [`Engine::MountChanged`]; then the container is stopped.
pub async fn restart(mut found: ManagedContainer, store: &Store, links: &Links) -> Result<ManagedContainer> {
    protected_paths::place_again(&found.record.placeholders);
    let expected = mount_identities(found.present()?)?;
    store.lend_link(&found.record)?;
    let id = found.present()?.id.clone();
    let started = async {
        found.runtime.start(&id).await?;
        for mount in &mut found.record.mounts {
            *mount = RecordedMount::new(mount.host.clone(), mount.container.clone(), mount.mode);
        }
        let container = found.runtime.inspect(&(&id).into()).await?;
        if found.record.guest.is_some() {
            links.forget(&id);
            links.wait_for_guest(&*found.runtime, store, &mut found.record, &container).await?;
        } else if mount_identities(&container).ok().as_ref() != Some(&expected) {
            found.runtime.stop(&id, Duration::ZERO).await?;
            let targets = container.mounts.iter().map(|mount| mount.target.clone()).collect();
            return Err(Engine::MountChanged { targets }.into());
        }
        store.update(&found.record)?;
        found.container = Some(container);
        Ok(())
    };
    let started = started.await;
    if started.is_err() {
        // No guest answered that needs it, and commands must not have it.
        store.take_link_back(&found.record)?;
    }
    started.map(|()| found)
}

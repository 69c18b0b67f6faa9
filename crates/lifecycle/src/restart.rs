//! A container that stopped, started again.

use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{Mount, PolicyRefusal, Problem};

use crate::create::unchanged;
use crate::{Error, Links, ManagedContainer, Result, Store};

/// Starts a stopped container and gives it as it is now.
///
/// The engine resolves the paths of its binds anew, and code that ran inside may have put a link in the place of one: so
/// each has to lead where it led when it was admitted, before the start and after it.
///
/// # Errors
/// [`Error::Refused`] under the rule `mount.changed`; then the container is stopped.
pub async fn restart(mut found: ManagedContainer, store: &Store, links: &Links) -> Result<ManagedContainer> {
    let mounts = found.record.mounts.iter().map(held).collect::<Result<Vec<_>>>()?;
    store.lend_link(&found.record)?;
    let started = started(&mut found, store, links, &mounts).await;
    if started.is_err() {
        // Nobody was met who would need it, and commands may not have it.
        store.take_link_back(&found.record)?;
    }
    started.map(|()| found)
}

async fn started(found: &mut ManagedContainer, store: &Store, links: &Links, mounts: &[Mount]) -> Result<()> {
    let id = found.present()?.id.clone();
    found.runtime.start(&id).await?;
    let container = found.runtime.inspect(&(&id).into()).await?;
    if let Err(changed) = unchanged(mounts, &container) {
        found.runtime.stop(&id, std::time::Duration::ZERO).await?;
        return Err(changed);
    }
    if found.record.guest.is_some() {
        links.forget(&id);
        links.wait_for_guest(&*found.runtime, store, &mut found.record, &container).await?;
        store.update(&found.record)?;
    }
    found.container = Some(container);
    Ok(())
}

fn held(mount: &crate::RecordedMount) -> Result<Mount> {
    let host = HostPath::open(&mount.host)?;
    if host.real() == mount.host {
        return Ok(Mount { host, at: mount.container.clone(), access: mount.mode });
    }
    let value = mount.host.display().to_string();
    let message = format!("`{value}` leads somewhere else than when the container was made");
    Err(Error::Refused(PolicyRefusal {
        problems: vec![Problem { rule: "mount.changed", setting: None, value, message }],
    }))
}

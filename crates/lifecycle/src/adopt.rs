//! Containers that Coracle did not create, and that the user allows to be used.
//!
//! **Invariant:** an adopted container is removed, stopped or started only at the user's own request.

use coracle_runtime::Container;
use coracle_types::{ContainerName, ContainerPath, Handle};

use crate::compose_stack::numbers;
use crate::record::{Origin, Record, Role};
use crate::store::LoadOutcome;
use crate::{Engines, Error, ManagedContainer, ResourceKind, Result, Store, find};

/// Records a running container that Coracle did not create, for a session. It has no guest, so commands run through the
/// engine's own exec, as the user of its image.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::NameTaken`] for a managed container, or if its name is in use; if it does not run.
pub async fn adopt(engines: &dyn Engines, store: &Store, handle: &Handle, session: &str) -> Result<ManagedContainer> {
    match find(engines, store, handle).await {
        Err(Error::NotManaged { .. }) => {}
        Ok(found) => return Err(taken(found.record.name, found.container.as_ref())),
        Err(err) => return Err(err),
    }
    let runtime = engines.preferred().await?;
    let container = runtime.inspect(handle).await?;
    if !container.running() {
        let (status, exit_code, oom_killed) = (container.status, container.exit_code, container.oom_killed);
        return Err(coracle_types::Error::NotRunning { status, exit_code, oom_killed, output: None }.into());
    }
    let unfit = || Error::NotManaged { kind: ResourceKind::Container, name: container.name.clone() };
    let name = ContainerName::parse(&container.name).map_err(|_| unfit())?;
    let _lock = store.lock(&name).await?;
    if !matches!(store.load(&name)?, LoadOutcome::Missing)
        || store.records()?.iter().any(|it| it.id.as_ref() == Some(&container.id))
    {
        return Err(taken(name, Some(&container)));
    }
    let origin = Origin::for_runtime(&*runtime, store.signer().namespace());
    let record = Record {
        role: Role::Adopted,
        persistent: true,
        workdir: ContainerPath::parse(&container.workdir).unwrap_or_else(|_| ContainerPath::root()),
        user_name: Some(container.user.clone()),
        exec_user: numbers(&container.user),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Record::intent(origin, name, session).shown(&container)
    };
    store.save(&record)?;
    Ok(ManagedContainer { runtime, record, container: Some(container) })
}

fn taken(name: ContainerName, container: Option<&Container>) -> Error {
    Error::NameTaken { name, ours: true, running: container.map(Container::running) }
}

//! What there is: records and engines side by side.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_runtime::{Container, ContainerRuntime, LabelFilter};
use coracle_types::EngineKind;

use crate::compose_stack::service;
use crate::find::{is_session_container, proven, rebuild};
use crate::record::{Record, Role};
use crate::{Engines, ManagedContainer, Result, Store, StoreError};

/// A managed container.
#[derive(Debug)]
pub struct ContainerEntry {
    /// What we remember.
    pub record: Arc<Record>,
    /// What the engine knows; missing when it is gone.
    pub container: Option<Arc<Container>>,
}

impl ContainerEntry {
    /// The same with its engine.
    pub(crate) fn on(self, runtime: Arc<dyn ContainerRuntime>) -> ManagedContainer {
        let container = self.container.map(Arc::unwrap_or_clone);
        ManagedContainer { runtime, record: Arc::unwrap_or_clone(self.record), container }
    }
}

/// All that carries our label.
#[derive(Debug, Default)]
pub struct ContainerList {
    /// Containers that are provably Coracle's, oldest first.
    pub containers: Vec<ContainerEntry>,
    /// Containers that are provably Coracle's and were created for sessions, sandboxes or image builds, oldest first.
    pub others: Vec<ContainerEntry>,
    /// Names of containers that carry our label without the proof. Nothing acts on them.
    pub unverified: Vec<String>,
    /// Those of them that another key has signed, such as that of another state directory.
    pub foreign: Vec<String>,
    /// Services of stacks by project, in the order of their names.
    pub services: BTreeMap<String, Vec<String>>,
}

/// The label that Compose puts on a service's container.
const SERVICE: &str = "com.docker.compose.service";

impl ContainerList {
    fn note_service(&mut self, service: &Record, container: &Container) {
        let name = container.labels.get(SERVICE).unwrap_or(&container.name);
        if let Some(project) = &service.compose_project {
            let services = self.services.entry(project.to_string()).or_default();
            services.push(name.clone());
            services.sort();
        }
    }
}

/// Lists containers of this namespace on the preferred engine and on every engine that a record names.
///
/// # Errors
/// When one of these engines does not answer: its containers would be reported as missing.
pub async fn list(engines: &dyn Engines, store: &Store) -> Result<ContainerList> {
    list_by(engines, store, Freshness::Exact).await
}

/// The same as of a moment ago, for who looks around: nothing is to be decided by it.
///
/// # Errors
/// Those of [`list`].
pub async fn list_recent(engines: &dyn Engines, store: &Store) -> Result<ContainerList> {
    list_by(engines, store, Freshness::Recent).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Exact,
    /// The state of containers may be up to 0.3 s old.
    Recent,
}

async fn managed(runtime: &dyn ContainerRuntime, store: &Store, freshness: Freshness) -> Result<Vec<Arc<Container>>> {
    let managed = LabelFilter(vec![(store.signer().key("managed"), Some("true".into()))]);
    Ok(match freshness {
        Freshness::Exact => runtime.list(&managed).await?.into_iter().map(Arc::new).collect(),
        Freshness::Recent => runtime.list_recent(&managed).await?,
    })
}

async fn list_by(engines: &dyn Engines, store: &Store, freshness: Freshness) -> Result<ContainerList> {
    let preferred = engines.preferred().await?;
    // A hundred records take as long to be read as the engine takes to name what it has.
    let reading = tokio::task::spawn_blocking({
        let store = store.clone();
        move || store.records()
    });
    let (records, first) = tokio::join!(reading, managed(&*preferred, store, freshness));
    let records = records.map_err(|err| StoreError::io(store.root())(err.into()))??;
    let with = |runtime: &Arc<dyn ContainerRuntime>, found: Vec<Arc<Container>>| {
        found.into_iter().map(|it| (runtime.clone(), it)).collect::<Vec<_>>()
    };
    let mut first = first?;
    let of_preferred = |it: &&Arc<Record>| {
        it.engine == preferred.kind() && it.endpoint == preferred.endpoint().address && it.id.is_some()
    };
    let unseen = |it: &Arc<Record>| !first.iter().any(|seen| Some(&seen.id) == it.id.as_ref());
    if records.iter().filter(of_preferred).any(unseen) {
        // It may have been made after the engine answered and before its record was read.
        first = managed(&*preferred, store, Freshness::Exact).await?;
    }
    let mut seen = with(&preferred, first);
    let another = |it: &Arc<dyn ContainerRuntime>| {
        it.kind() != preferred.kind() || it.endpoint().address != preferred.endpoint().address
    };
    for runtime in recorded_engines(engines, &records).await?.into_iter().filter(another) {
        seen.extend(with(&runtime, managed(&*runtime, store, freshness).await?));
    }
    let mut listing = ContainerList::default();
    for record in records {
        let at = seen.iter().position(|(_, it)| Some(&it.id) == record.id.as_ref());
        let container = at.map(|at| seen.swap_remove(at).1);
        match record.role {
            Role::Primary => listing.containers.push(ContainerEntry { record, container }),
            Role::Adopted => {
                let runtime = engines.for_record(record.engine, &record.endpoint).await?;
                // It need not have a label of Coracle's.
                let container = proven(&*runtime, &record).await?.map(Arc::new);
                listing.containers.push(ContainerEntry { record, container });
            }
            _ => listing.others.push(ContainerEntry { record, container }),
        }
    }
    for (runtime, container) in seen {
        if let Some(service) = service(store, &*runtime, &container)? {
            listing.note_service(&service, &container);
            continue;
        }
        if is_session_container(store, &*runtime, &container) {
            continue;
        }
        match rebuild(&*runtime, store, &container).await? {
            Some(record) if !listing.containers.iter().any(|it| it.record.name == record.name) => {
                listing.containers.push(ContainerEntry { record: Arc::new(record), container: Some(container) });
            }
            // Another call is creating it: its record will have the id in a moment.
            Some(_) => {}
            None => {
                if store.signer().has_signature(&container.labels) && !store.signed(runtime.kind(), &container.labels) {
                    listing.foreign.push(container.name.clone());
                }
                listing.unverified.push(container.name.clone());
            }
        }
    }
    listing.containers.sort_by_key(|it| it.record.created);
    listing.others.sort_by_key(|it| it.record.created);
    Ok(listing)
}

/// The preferred engine, and every engine that a record names.
pub(crate) async fn recorded_engines(
    engines: &dyn Engines,
    records: &[Arc<Record>],
) -> Result<Vec<Arc<dyn ContainerRuntime>>> {
    let mut engines_found: BTreeMap<(EngineKind, String), Arc<dyn ContainerRuntime>> = BTreeMap::new();
    let preferred = engines.preferred().await?;
    engines_found.insert((preferred.kind(), preferred.endpoint().address), preferred);
    for record in records {
        let key = (record.engine, record.endpoint.clone());
        if let std::collections::btree_map::Entry::Vacant(slot) = engines_found.entry(key) {
            slot.insert(engines.for_record(record.engine, &record.endpoint).await?);
        }
    }
    Ok(engines_found.into_values().collect())
}

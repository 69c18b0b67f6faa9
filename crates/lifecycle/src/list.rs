//! What there is: records and engines side by side.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_runtime::{Container, ContainerRuntime, EngineKind, LabelFilter};

use crate::find::rebuild;
use crate::record::{Record, Role};
use crate::stack::service;
use crate::{Engines, Result, Store};

/// One container of ours.
#[derive(Debug)]
pub struct Listed {
    /// What we remember.
    pub record: Record,
    /// What the engine knows; missing when it is gone.
    pub container: Option<Container>,
}

/// All that carries our label.
#[derive(Debug, Default)]
pub struct Listing {
    /// Proven ours, oldest first.
    pub containers: Vec<Listed>,
    /// Names of containers that carry our label without the proof. Nothing acts on them.
    pub unverified: Vec<String>,
}

/// Lists containers of this namespace on the preferred engine and on every engine that a record names.
///
/// # Errors
/// When one of these engines does not answer: what it holds would be told as missing.
pub async fn list(engines: &dyn Engines, store: &Store) -> Result<Listing> {
    let records = store.records()?;
    let mut listing = Listing::default();
    let mut seen: Vec<(Arc<dyn ContainerRuntime>, Container)> = Vec::new();
    for runtime in asked(engines, &records).await? {
        let managed = LabelFilter(vec![(store.signer().key("managed"), Some("true".into()))]);
        seen.extend(runtime.list(&managed).await?.into_iter().map(|it| (runtime.clone(), it)));
    }
    for record in records {
        let at = seen.iter().position(|(_, it)| Some(&it.id) == record.id.as_ref());
        let container = at.map(|at| seen.swap_remove(at).1);
        if record.role == Role::Primary {
            listing.containers.push(Listed { record, container });
        }
    }
    for (runtime, container) in seen {
        if service(store, &*runtime, &container)?.is_some() {
            continue;
        }
        match rebuild(&*runtime, store, &container).await? {
            Some(record) if !listing.containers.iter().any(|it| it.record.name == record.name) => {
                listing.containers.push(Listed { record, container: Some(container) });
            }
            // Somebody is just making it: its record will hold the id in a moment.
            Some(_) => {}
            None => listing.unverified.push(container.name),
        }
    }
    listing.containers.sort_by_key(|it| it.record.created);
    Ok(listing)
}

/// The preferred engine, and every engine that a record names.
pub(crate) async fn asked(engines: &dyn Engines, records: &[Record]) -> Result<Vec<Arc<dyn ContainerRuntime>>> {
    let mut asked: BTreeMap<(EngineKind, String), Arc<dyn ContainerRuntime>> = BTreeMap::new();
    let preferred = engines.preferred().await?;
    asked.insert((preferred.kind(), preferred.endpoint().address), preferred);
    for record in records {
        let key = (record.engine, record.endpoint.clone());
        if let std::collections::btree_map::Entry::Vacant(slot) = asked.entry(key) {
            slot.insert(engines.of(record.engine, &record.endpoint).await?);
        }
    }
    Ok(asked.into_values().collect())
}

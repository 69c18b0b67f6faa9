//! Reaching the guest of a recorded container without inspecting the container first.

use coracle_client::Link;
use coracle_types::{Error as Engine, Handle};

use crate::find::recorded;
use crate::record::{GuestRecord, Record, RecordState, Role};
use crate::{Engines, Links, Result, Store};

/// A recorded container and a link to its guest: one that is held, its socket, or the engine's exec. That exec names
/// the recorded id, so it enters that container or fails; to inspect it before costs as much as a third of the exec.
///
/// `None` where the container is gone or does not run, and where the record does not suffice:
/// [`find`](crate::find) inspects it and tells why.
///
/// # Errors
/// When the record cannot be read or written, its engine cannot be had, or the container runs and its guest does not
/// answer.
pub async fn enter(
    engines: &dyn Engines,
    store: &Store,
    links: &Links,
    handle: &Handle,
) -> Result<Option<(Record, Link)>> {
    let Some(mut record) = recorded(store, handle)? else { return Ok(None) };
    if let Some(link) = links.direct_link(store, &record).await {
        return Ok(Some((record, link)));
    }
    let Some(id) = record.id.clone().filter(|_| suffices(&record)) else { return Ok(None) };
    let runtime = engines.for_record(record.engine, &record.endpoint).await?;
    let link = match links.open(&*runtime, &id, store.socket(&record)).await {
        Ok(link) => link,
        // The container was seen to run.
        Err(
            err @ (Engine::GuestFailed { .. }
            | Engine::GuestVersion { .. }
            | Engine::FilesRemoved { .. }
            | Engine::MountChanged { .. }),
        ) => {
            return Err(err.into());
        }
        Err(err) => {
            tracing::debug!(container = %record.name, %err, "it has to be inspected");
            return Ok(None);
        }
    };
    // A socket answered whose process the record does not name yet: the next call takes it at once.
    let peer = link.peer();
    if let Some(guest) = record.guest.take() {
        let is_new = peer.is_some() && guest.pid1 != peer;
        let pid1 = if is_new { peer } else { guest.pid1 };
        record.guest = Some(GuestRecord { pid1, ..guest });
        if is_new {
            store.update(&record)?;
        }
    }
    Ok(Some((record, link)))
}

/// Opens a link to the guest of a recorded container, which need not be ready yet.
///
/// # Errors
/// When the container was not created, its engine cannot be had, or the guest does not answer.
pub async fn open_link(engines: &dyn Engines, store: &Store, links: &Links, record: &Record) -> Result<Link> {
    let Some(id) = &record.id else { return Err(Engine::NoSuchContainer(record.name.to_string()).into()) };
    if let Some(link) = links.by_socket(store, record, id).await {
        return Ok(link);
    }
    let runtime = engines.for_record(record.engine, &record.endpoint).await?;
    Ok(links.open(&*runtime, id, store.socket(record)).await?)
}

/// Whether the record tells all that an inspection would: of a service or an adopted container the user may have to be
/// looked up, and what has no user in its record may have one in its labels.
fn suffices(record: &Record) -> bool {
    record.state == RecordState::Ready
        && record.role == Role::Primary
        && record.guest.is_some()
        && record.exec_user.is_some()
}

//! The state of a slot's container.

use std::sync::Arc;
use std::time::Duration;

use coracle_client::Link;
use coracle_protocol::IDLE_EXIT_CODE;
use coracle_runtime::{Container, ContainerRuntime};
use coracle_types::{ContainerStatus, Error as Engine, Handle};
use tokio::time::timeout;

use super::record::ExitCause;
use super::{Reason, SessionContainers, SlotError, SlotRecord};
use crate::find::{proven, read_labels, remember};
use crate::guest::pinged;
use crate::record::{Record, RecordState};
use crate::slot::{SlotKey, SlotRole};
use crate::store::LoadOutcome;
use crate::{Engines, Result, Store};

/// A guest that has to be met again does by then.
const ANSWERS: Duration = Duration::from_secs(5);

/// The result of an inspection.
#[derive(Debug)]
pub(super) enum Liveness {
    /// It runs, and its guest answers.
    Answers(Link),
    /// It had ended, and was started again.
    Restarted(Link),
    Lost(ExitCause),
    /// The container of the record is not managed by Coracle.
    Foreign,
}

impl Liveness {
    fn lost(reason: Reason, exit_code: Option<i64>) -> Self {
        Self::Lost(ExitCause { reason, exit_code })
    }
}

impl SessionContainers {
    /// Looks at the container of a record, and brings it back where that is enough.
    pub(super) async fn inspect(&self, runtime: &dyn ContainerRuntime, slot: &mut SlotRecord) -> Result<Liveness> {
        self.recover_record(runtime, slot).await?;
        let Some(record) = &slot.container else { return Ok(Liveness::Lost(slot.loss())) };
        let Some(container) = proven(runtime, record).await? else {
            return Ok(Liveness::lost(Reason::Vanished, None));
        };
        if !is_of(&self.store, runtime, slot, &container) {
            return Ok(Liveness::Foreign);
        }
        let ended = match container.exit_code {
            _ if container.oom_killed => Reason::Oom,
            // Its guest exited because no client was connected.
            Some(code) if code == i64::from(IDLE_EXIT_CODE) => Reason::Idle,
            _ => Reason::Crashed,
        };
        let (mut restarted, again_if_ended) = (false, slot.role.is_started_again() && !container.oom_killed);
        let container = match container.status {
            ContainerStatus::Running => container,
            ContainerStatus::Paused | ContainerStatus::Created => match self.again(runtime, &container).await {
                Ok(container) => container,
                Err(err @ Engine::Unavailable { .. }) => return Err(err.into()),
                Err(err) => {
                    tracing::warn!(container = container.name, %err, "it cannot be brought back");
                    return Ok(Liveness::lost(Reason::Crashed, None));
                }
            },
            ContainerStatus::Exited if again_if_ended => match self.again(runtime, &container).await {
                Ok(container) => {
                    restarted = true;
                    container
                }
                Err(err @ Engine::Unavailable { .. }) => return Err(err.into()),
                Err(_) => return Ok(Liveness::lost(ended, container.exit_code)),
            },
            ContainerStatus::Exited | ContainerStatus::Dead | ContainerStatus::Restarting => {
                return Ok(Liveness::lost(ended, container.exit_code));
            }
        };
        Ok(match self.reach(runtime, &container).await {
            Ok(link) if restarted => Liveness::Restarted(link),
            Ok(link) => Liveness::Answers(link),
            Err(reason) => Liveness::lost(reason, None),
        })
    }

    /// Returns the engine's state of a slot's container without changing it; `None` if there is none of Coracle's.
    ///
    /// # Errors
    /// If the engine does not respond, or the record cannot be read.
    pub async fn status(&self, engines: &dyn Engines, key: SlotKey<'_>) -> Result<Option<ContainerStatus>, SlotError> {
        let LoadOutcome::Record(slot) = self.store.load_slot(key)? else { return Ok(None) };
        let Some(record) = &slot.container else { return Ok(None) };
        let runtime = engines.for_record(record.engine, &record.endpoint).await?;
        let container = proven(&*runtime, record).await?;
        Ok(container.filter(|it| is_of(&self.store, &*runtime, &slot, it)).map(|it| it.status))
    }

    /// Restores the record of its container from the container's labels, if that record is lost.
    async fn recover_record(&self, runtime: &dyn ContainerRuntime, slot: &mut SlotRecord) -> Result<()> {
        // One that was never filled was never ready.
        if slot.container.is_some() || slot.volume.filled.is_none() {
            return Ok(());
        }
        if let Some(record) = self.lifecycle_record(runtime, slot).await?.filter(|it| it.state == RecordState::Ready) {
            remember(&self.store, &record)?;
            slot.has_container(Arc::new(record));
        }
        Ok(())
    }

    async fn again(&self, runtime: &dyn ContainerRuntime, container: &Container) -> Result<Container, Engine> {
        // A paused container may have commands in it, which must not get a host directory.
        let fresh = matches!(container.status, ContainerStatus::Created | ContainerStatus::Exited);
        let record = record_of(&self.store, runtime, container).filter(|_| fresh);
        if let Some(record) = &record
            && let Err(err) = self.store.lend_link(record)
        {
            tracing::debug!(container = container.name, %err, "its guest will be met another way");
        }
        let again = async {
            runtime.start(&container.id).await?;
            runtime.inspect(&Handle::from(&container.id)).await
        };
        let again = again.await;
        if let (Err(_), Some(record)) = (&again, &record) {
            self.take_back(record);
        }
        again
    }

    /// Withdraws the link's directory, since no guest answered that needs it.
    fn take_back(&self, record: &Record) {
        if let Err(err) = self.store.take_link_back(record) {
            tracing::warn!(container = %record.name, %err, "its link's directory stays lent");
        }
    }

    /// The link to its guest, or what became of it.
    async fn reach(&self, runtime: &dyn ContainerRuntime, container: &Container) -> Result<Link, Reason> {
        let mut record = record_of(&self.store, runtime, container).ok_or(Reason::Crashed)?;
        let meeting = async {
            let link = self.links.wait_for_guest(runtime, &self.store, &mut record, container).await;
            match link {
                Ok(link) if pinged(&link, ANSWERS).await => Ok(link),
                Ok(_) => Err(Reason::Crashed),
                Err(err) => {
                    tracing::warn!(container = container.name, %err, "its guest does not answer");
                    let is_lost = matches!(err, crate::Error::Runtime(Engine::NodeLost { .. }));
                    Err(if is_lost { Reason::NodeLost } else { Reason::Crashed })
                }
            }
        };
        let link = timeout(ANSWERS, meeting).await.unwrap_or(Err(Reason::Crashed));
        match &link {
            Ok(_) => {
                if let Err(err) = self.store.update(&record) {
                    tracing::debug!(container = container.name, %err, "its PID 1 is not noted");
                }
            }
            Err(_) => {
                self.links.forget(&container.id);
                self.take_back(&record);
            }
        }
        link
    }
}

/// Whether a container is proven to be of that slot.
pub(super) fn is_of(store: &Store, runtime: &dyn ContainerRuntime, slot: &SlotRecord, container: &Container) -> bool {
    let says = |name: &str| container.labels.get(&store.signer().key(name)).map(String::as_str);
    store.signed(runtime.kind(), &container.labels)
        && says("role") == Some(slot.role.as_str())
        && says("session") == Some(slot.session.as_str())
}

/// The record of a managed container, else the content of its labels.
pub(super) fn record_of(store: &Store, runtime: &dyn ContainerRuntime, container: &Container) -> Option<Record> {
    let label = |name: &str| container.labels.get(&store.signer().key(name));
    let role = SlotRole::ALL.into_iter().find(|it| label("role").is_some_and(|role| role == it.as_str()))?;
    let signed = read_labels(runtime, store, container, role.into())?;
    match store.load(&signed.name) {
        Ok(LoadOutcome::Record(record)) if record.record_id == signed.record_id => Some(Arc::unwrap_or_clone(record)),
        _ => Some(signed),
    }
}

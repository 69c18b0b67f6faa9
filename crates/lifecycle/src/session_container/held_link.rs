//! The way into a slot that is there.

use coracle_runtime::ContainerName;
use coracle_runtime::link::Link;

use super::SessionContainers;
use super::record::SlotFile;
use crate::slot::SlotRole;
use crate::store::Loaded;

impl SessionContainers {
    /// Where a caller that saves a slot's files itself writes them. `None` without a recorded container.
    #[must_use]
    pub fn save_destination(&self, session: &ContainerName, role: SlotRole) -> Option<crate::SaveDestination> {
        let Ok(SlotFile::Record(slot)) = self.store.load_slot((session, role)) else { return None };
        match self.store.load(slot.name.as_ref()?) {
            Ok(Loaded::Record(record)) => Some(crate::SaveDestination::new(&self.store, &record)),
            _ => None,
        }
    }

    /// The link to a slot's container, if it can be had without asking an engine. Makes nothing.
    pub async fn held_link(&self, session: &ContainerName, role: SlotRole) -> Option<Link> {
        if let Some(there) = self.slot(session, role).seen().there.clone() {
            return Some(there.link);
        }
        let Ok(SlotFile::Record(slot)) = self.store.load_slot((session, role)) else { return None };
        match self.store.load(slot.name.as_ref()?) {
            Ok(Loaded::Record(record)) => self.links.at_hand(&self.store, &record).await,
            _ => None,
        }
    }
}

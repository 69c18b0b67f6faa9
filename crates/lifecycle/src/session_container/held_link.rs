//! The link to a slot's container that runs, and what a save of it begins with.

use std::sync::Arc;

use coracle_client::Link;

use super::SessionContainers;
use crate::record::Record;
use crate::slot::SlotKey;

impl SessionContainers {
    /// Where a caller that saves a slot's files itself writes them. `None` without a recorded container.
    #[must_use]
    pub fn save_destination(&self, key: SlotKey<'_>) -> Option<crate::SaveDestination> {
        Some(crate::SaveDestination::new(&self.store, &*self.recorded(key)?))
    }

    /// The link to a slot's container, if it can be had without asking an engine. Creates nothing.
    pub async fn held_link(&self, key: SlotKey<'_>) -> Option<Link> {
        if let Some(there) = self.slot(key).seen().there.clone() {
            return Some(there.link);
        }
        self.links.direct_link(&self.store, &*self.recorded(key)?).await
    }

    fn recorded(&self, key: SlotKey<'_>) -> Option<Arc<Record>> {
        self.store.load_slot(key).ok()?.record()?.container
    }
}

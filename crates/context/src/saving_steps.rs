//! Which checkpoints are being saved after calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use coracle_types::RecordId;
use tokio::sync::OwnedMutexGuard;

/// The checkpoints that this process saves now.
#[derive(Debug, Default)]
pub struct SavingSteps {
    saving: Mutex<HashMap<RecordId, Arc<tokio::sync::Mutex<()>>>>,
}

impl SavingSteps {
    /// Waits until the checkpoint after the last call is saved: the next call would change the files meanwhile.
    pub async fn settled(&self, container: &RecordId) {
        let saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner).get(container).cloned();
        if let Some(saving) = saving {
            drop(saving.lock().await);
        }
    }

    /// Waits for the last one, and notes that another one is being saved while the result is held.
    pub(crate) async fn begin(&self, container: &RecordId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
            // Only those that are in use.
            saving.retain(|_, it| Arc::strong_count(it) > 1);
            saving.entry(container.clone()).or_default().clone()
        };
        lock.lock_owned().await
    }
}

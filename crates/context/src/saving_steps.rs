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

    /// Notes that a checkpoint is going to be saved. It waits for its turn when it is.
    pub(crate) fn begin(&self, container: &RecordId) -> SavingStep {
        let mut saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        // Only those that are in use.
        saving.retain(|_, it| Arc::strong_count(it) > 1);
        let lock = saving.entry(container.clone()).or_default().clone();
        match lock.clone().try_lock_owned() {
            Ok(guard) => SavingStep::Begun(guard),
            Err(_) => SavingStep::Waits(lock),
        }
    }
}

/// A checkpoint that is going to be saved.
pub(crate) enum SavingStep {
    /// The next call waits for it from now on.
    Begun(OwnedMutexGuard<()>),
    /// Another one is being saved.
    Waits(Arc<tokio::sync::Mutex<()>>),
}

impl SavingStep {
    /// Its turn, until the result is dropped.
    pub(crate) async fn lock(self) -> OwnedMutexGuard<()> {
        match self {
            Self::Begun(guard) => guard,
            Self::Waits(lock) => lock.lock_owned().await,
        }
    }
}

//! Interpreters whose variables persist between calls: one Python for each container in which code runs.
//!
//! One of Coracle's programs ([`process`]) reads code from its standard input, runs it, and replies in its output after
//! a mark ([`frames`]). The reply comes from inside and is validated ([`reply`]).

mod frames;
mod process;
mod reply;

use std::sync::Arc;

use coracle_types::SlotRole;
use tokio::sync::{Mutex, OwnedMutexGuard};

pub(crate) use self::process::{Interruption, Kernel, KernelRun, RunRequest};
pub(crate) use self::reply::{KernelReply, RunError};
pub use self::reply::{RunFile, RunOutput};

/// The kernels of a workspace. They end with it.
#[derive(Debug, Default)]
pub(crate) struct Kernels([Arc<Mutex<KernelSlot>>; 2]);

/// The kernel of a role, if it has one.
#[derive(Debug, Default)]
pub(crate) struct KernelSlot {
    pub(crate) kernel: Option<Kernel>,
}

impl Kernels {
    /// The kernel of a role, for one run at a time.
    pub(crate) async fn lock(&self, role: SlotRole) -> OwnedMutexGuard<KernelSlot> {
        self.0[usize::from(role == SlotRole::Run)].clone().lock_owned().await
    }

    /// Ends all of them. One that runs code ends with its run.
    pub(crate) fn end(&self) {
        for slot in &self.0 {
            if let Ok(mut slot) = slot.try_lock() {
                slot.kernel = None;
            }
        }
    }
}

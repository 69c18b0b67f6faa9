//! The terminal of a running command.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use tokio::io::AsyncWrite;

use crate::os::machine::TerminalDevice;
use crate::protocol::TerminalSize;

/// The terminal of a command, and the number of attached callers.
pub(crate) struct JobTerminal {
    device: Arc<dyn TerminalDevice>,
    size: Mutex<TerminalSize>,
    attached: AtomicU32,
}

/// Counts an attached caller until it is dropped.
pub(crate) struct AttachGuard(Arc<JobTerminal>);

impl fmt::Debug for JobTerminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobTerminal").field("size", &self.size()).finish_non_exhaustive()
    }
}

impl JobTerminal {
    pub(crate) fn new(device: Arc<dyn TerminalDevice>, size: TerminalSize) -> Self {
        Self { device, size: Mutex::new(size), attached: AtomicU32::new(0) }
    }

    pub(crate) fn size(&self) -> TerminalSize {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of attached callers.
    pub(crate) fn attached(&self) -> u32 {
        self.attached.load(Ordering::Relaxed)
    }

    pub(crate) fn resize(&self, size: TerminalSize) {
        let mut before = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        *before = size;
        self.device.resize(size);
    }

    /// Attaches a caller whose terminal has that size. The size always changes, so that a program redraws its screen.
    pub(crate) fn attach(self: &Arc<Self>, size: TerminalSize) -> AttachGuard {
        if self.size() == size {
            self.resize(TerminalSize { rows: size.rows.saturating_add(1), ..size });
        }
        self.resize(size);
        self.attached.fetch_add(1, Ordering::Relaxed);
        AttachGuard(self.clone())
    }

    pub(crate) fn open_input(&self) -> io::Result<Box<dyn AsyncWrite + Send + Unpin>> {
        self.device.open_input()
    }
}

impl Drop for AttachGuard {
    fn drop(&mut self) {
        self.0.attached.fetch_sub(1, Ordering::Relaxed);
    }
}

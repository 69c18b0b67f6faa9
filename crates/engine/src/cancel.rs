//! Cancels work on blocking threads: after a deadline, or when its caller is dropped.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::retry_on_intr;

/// A flag that the work checks at each step. Work that nothing can cancel has [`CancelFlag::NEVER`].
#[derive(Clone, Debug)]
pub(crate) struct CancelFlag(Option<Arc<CancelState>>);

#[derive(Debug)]
struct CancelState {
    /// Readable once the work is cancelled, also for a child process that does a part of it.
    event: OwnedFd,
    stage: Mutex<Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    Publishing,
    Cancelled,
}

/// The result of cancelling work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancellation {
    /// The work was cancelled and has no result.
    Effective,
    /// The result was already being published, and will be.
    TooLate,
}

/// The error of cancelled work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was cancelled")]
pub(crate) struct CancelledError;

impl CancelFlag {
    pub(crate) const NEVER: Self = Self(None);

    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Some(Arc::new(CancelState { event, stage: Mutex::new(Stage::Working) }))))
    }

    /// Cancels the work, unless its result is already being published.
    pub(crate) fn cancel(&self) -> Cancellation {
        let Some(state) = &self.0 else { return Cancellation::TooLate };
        let mut stage = state.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Publishing {
            return Cancellation::TooLate;
        }
        *stage = Stage::Cancelled;
        // The only possible failure is a full counter, which is readable, too.
        let _ = rustix::io::write(&state.event, &1u64.to_ne_bytes());
        Cancellation::Effective
    }

    /// Fails if the work was cancelled.
    ///
    /// # Errors
    /// [`CancelledError`], within an [`io::Error`].
    pub(crate) fn check(&self) -> io::Result<()> {
        let Some(state) = &self.0 else { return Ok(()) };
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Repeated after a signal: callers would take the error for a failed write, and write the same bytes again.
        let readable = retry_on_intr(|| poll(&mut [PollFd::new(&state.event, PollFlags::IN)], Some(&at_once)))?;
        if readable > 0 { Err(io::Error::other(CancelledError)) } else { Ok(()) }
    }

    /// Called before a result is published. From here on, the work cannot be cancelled.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn begin_publishing(&self) -> io::Result<()> {
        let Some(state) = &self.0 else { return Ok(()) };
        let mut stage = state.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Cancelled {
            return Err(io::Error::other(CancelledError));
        }
        *stage = Stage::Publishing;
        Ok(())
    }

    /// Returns a guard that cancels the work when the caller stops waiting for it.
    pub(crate) fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

/// Cancels work when it is dropped.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_given_up_until_its_result_appears() {
        let flag = CancelFlag::new().unwrap();
        flag.check().unwrap();
        drop(flag.cancel_on_drop());
        assert_eq!(flag.check().unwrap_err().downcast::<CancelledError>().unwrap(), CancelledError);
        assert!(flag.begin_publishing().is_err());
        let flag = CancelFlag::new().unwrap();
        flag.begin_publishing().unwrap();
        assert_eq!(flag.cancel(), Cancellation::TooLate);
        flag.check().unwrap();
    }
}

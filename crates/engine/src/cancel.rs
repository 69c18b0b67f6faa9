//! Work on blocking threads that its caller gives up: after a deadline, or because the caller itself is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::retry_on_intr;

/// Read by the work at each of its steps. Work without a caller that could give it up has [`CancelFlag::NEVER`].
#[derive(Clone, Debug)]
pub(crate) struct CancelFlag(Option<Arc<CancelState>>);

#[derive(Debug)]
struct CancelState {
    /// Readable once the work is given up: a child process that does a part of it sees that, too.
    event: OwnedFd,
    stage: Mutex<Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    Publishing,
    Cancelled,
}

/// What giving up led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancellation {
    /// The work has no result.
    Effective,
    /// The result was about to appear, and does.
    TooLate,
}

/// The work was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was given up")]
pub(crate) struct GivenUp;

impl CancelFlag {
    pub(crate) const NEVER: Self = Self(None);

    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Some(Arc::new(CancelState { event, stage: Mutex::new(Stage::Working) }))))
    }

    /// Gives the work up, unless its result is about to appear.
    pub(crate) fn cancel(&self) -> Cancellation {
        let Some(state) = &self.0 else { return Cancellation::TooLate };
        let mut stage = state.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Publishing {
            return Cancellation::TooLate;
        }
        *stage = Stage::Cancelled;
        // A full counter, the only failure, is readable as well.
        let _ = rustix::io::write(&state.event, &1u64.to_ne_bytes());
        Cancellation::Effective
    }

    /// Fails when the work was given up.
    ///
    /// # Errors
    /// [`GivenUp`], within an [`io::Error`].
    pub(crate) fn check(&self) -> io::Result<()> {
        let Some(state) = &self.0 else { return Ok(()) };
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A signal must not look like a failure: what was written before would be written again.
        let readable = retry_on_intr(|| poll(&mut [PollFd::new(&state.event, PollFlags::IN)], Some(&at_once)))?;
        if readable > 0 { Err(io::Error::other(GivenUp)) } else { Ok(()) }
    }

    /// Called before a result appears: from here on the work cannot be given up.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn begin_publishing(&self) -> io::Result<()> {
        let Some(state) = &self.0 else { return Ok(()) };
        let mut stage = state.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Cancelled {
            return Err(io::Error::other(GivenUp));
        }
        *stage = Stage::Publishing;
        Ok(())
    }

    /// Gives the work up when the caller stops waiting for it.
    pub(crate) fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

/// Gives work up when it is dropped.
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
        assert_eq!(flag.check().unwrap_err().downcast::<GivenUp>().unwrap(), GivenUp);
        assert!(flag.begin_publishing().is_err());
        let flag = CancelFlag::new().unwrap();
        flag.begin_publishing().unwrap();
        assert_eq!(flag.cancel(), Cancellation::TooLate);
        flag.check().unwrap();
    }
}

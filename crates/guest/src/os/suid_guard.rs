//! Root inside a container of a rootful engine is root outside, or its files are root's where a directory of the host is
//! mounted with mapped ids, and without root a command is the person outside: a set-id file that it leaves in a directory
//! of the host makes any other user of the host root or that person. So no command sets such a bit itself. Its filter
//! refuses the calls that would create a file with one, and suspends those that would change a file's mode to have one
//! until the guest has answered them.
//!
//! The guest makes the change itself, with the caller's ids: it opens the file, checks which mount that is on, and sets
//! the mode through the open descriptor. On the container's own files the bits stay, so that packages with set-id files
//! can be installed; everywhere else they are left out. Nothing that the caller could change concurrently is read
//! twice.
//!
//! What is not the container's own is everything but the mount of `/`. Engines bind files of the host into every
//! container (`/etc/hosts`), so there is always something that the rule is for.

mod caller;
mod change;
mod listener;

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use self::change::{ChangeOutcome, OwnMount};
use self::listener::ListenerEvent;
use crate::os::seccomp::Filter;
use crate::protocol::{ErrorCode, RpcError};

/// Calls that are answered at once, for all callers together: each takes a thread, and file requests of the host need
/// threads too.
const MAX_CALLS: usize = 2;

/// The answer for a caller that the guest cannot act for.
const REFUSED: Errno = Errno::PERM;

/// Whether commands are kept from leaving set-id files, and how.
#[derive(Clone, Debug)]
pub(crate) enum SuidPolicy {
    /// This kernel cannot, but uid 0 inside is another user outside, in files of the host, too.
    Needless,
    /// No process inside is root, PID 1 included.
    Rootless,
    /// By a filter with notifications.
    Kept(Arc<SuidBroker>),
    /// This kernel cannot, and root inside is root in files of the host.
    Impossible,
}

/// Answers the calls.
#[derive(Debug)]
pub(crate) struct SuidBroker {
    own: OwnMount,
    flags: u64,
    places: Arc<Semaphore>,
}

/// Calls of one command's processes are answered while this is there. Without it they fail.
#[derive(Debug)]
pub(crate) struct ListenerTask(AbortHandle);

impl Drop for ListenerTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SuidPolicy {
    /// The one for the container that this process is PID 1 of.
    pub(crate) fn find() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::Rootless;
        }
        // Kernels with flags for a listener can give callers files, too.
        match listener::flags().and_then(|flags| Ok((flags, OwnMount::find(flags != 0)?))) {
            Ok((flags, own)) => {
                Self::Kept(Arc::new(SuidBroker { own, flags, places: Arc::new(Semaphore::new(MAX_CALLS)) }))
            }
            Err(_) if is_another_user() => Self::Needless,
            Err(_) => Self::Impossible,
        }
    }

    /// The filter of every command.
    pub(crate) fn filter(&self) -> Filter {
        match self {
            Self::Kept(keeper) => Filter::asking(keeper.flags),
            Self::Rootless => Filter::tight(),
            Self::Needless | Self::Impossible => Filter::new(),
        }
    }

    /// Whether a command may run as that user.
    ///
    /// # Errors
    /// [`ErrorCode::CannotStart`]: root, where the rule is needed and cannot be kept.
    pub(crate) fn allows(&self, uid: u32) -> Result<(), RpcError> {
        match self {
            Self::Impossible if uid == 0 => Err(RpcError::new(
                ErrorCode::CannotStart,
                "this kernel cannot keep root from leaving set-id files in directories of the host (it takes Linux 5.8 \
                 with seccomp's user notification), so root runs nothing here",
            )),
            _ => Ok(()),
        }
    }

    /// Answers the calls of a command that has a listener.
    pub(crate) fn start_listener(&self, listener: Option<OwnedFd>) -> Option<ListenerTask> {
        match (self, listener) {
            (Self::Kept(keeper), Some(listener)) => {
                let task = tokio::spawn(serve(Arc::clone(keeper), Arc::new(listener)));
                Some(ListenerTask(task.abort_handle()))
            }
            _ => None,
        }
    }
}

/// Answers one call after the other, until no process has the filter any more.
async fn serve(keeper: Arc<SuidBroker>, listener: Arc<OwnedFd>) {
    let Ok(calls) = listener::watched(Arc::clone(&listener)) else { return };
    while let Ok(mut ready) = calls.readable().await {
        match listener::pending(&*listener) {
            ListenerEvent::Over => return,
            ListenerEvent::Nothing => ready.clear_ready(),
            ListenerEvent::Call => {
                let Ok(place) = Arc::clone(&keeper.places).acquire_owned().await else { return };
                let (keeper, listener) = (Arc::clone(&keeper), Arc::clone(&listener));
                let answered = tokio::task::spawn_blocking(move || {
                    let _place = place;
                    keeper.answer(&listener);
                });
                // A panic there leaves its caller without an answer, and others are answered.
                let _ = answered.await;
            }
        }
    }
}

impl SuidBroker {
    /// Takes one call and answers it. A caller that is gone needs no answer.
    fn answer(&self, listener: &OwnedFd) {
        let Ok(call) = listener::receive(listener) else { return };
        let done = caller::with(&call, listener, |wanted| self.own.change(wanted)).and_then(|done| match done {
            ChangeOutcome::Changed => listener::reply(listener, call.id, None),
            ChangeOutcome::Made { file, closes } => listener::add_descriptor(listener, call.id, &file, closes),
        });
        if let Err(errno) = done {
            let _ = listener::reply(listener, call.id, Some(errno));
        }
    }
}

/// Whether root inside is another user in files of the host. Without the first file the kernel has no user namespaces.
/// Whoever mounts with mapped ids may map back.
fn is_another_user() -> bool {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}"));
    read("uid_map").is_ok_and(|it| is_mapped_away(&it)) && read("mountinfo").is_ok_and(|it| !has_mapped_mount(&it))
}

/// Whether uid 0 inside is no uid 0 outside, by lines of "inside outside count".
fn is_mapped_away(map: &str) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        matches!((numbers.next(), numbers.next()), (Some(Ok(0)), Some(Ok(outside))) if outside != 0)
    })
}

/// Whether the ids of a mount are mapped, by lines of `/proc/PID/mountinfo`.
fn has_mapped_mount(mounts: &str) -> bool {
    mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(5))
        .any(|options| options.split(',').any(|it| it == "idmapped"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_with_mapped_ids_is_told_from_one_of_that_name() {
        let plain = "31 29 0:45 /idmapped /idmapped rw,relatime shared:1 - ext4 idmapped rw,idmapped\n";
        assert!(!has_mapped_mount(plain) && !has_mapped_mount(""));
        let mapped = "32 29 254:0 /home/a /work rw,nosuid,nodev,relatime,idmapped - ext4 /dev/vda rw\n";
        assert!(has_mapped_mount(&[plain, mapped].concat()));
    }

    #[test]
    fn root_is_mapped_away_or_is_root() {
        for (map, expected) in [
            ("         0          0 4294967295\n", false),
            ("0 0 65536\n", false),
            ("0 1000 1\n1 100000 65536\n", true),
            ("0 100000 65536\n", true),
            ("1 100000 65536\n0 1000 1\n", true),
            ("", false),
            ("x y z\n", false),
        ] {
            assert_eq!(is_mapped_away(map), expected, "{map:?}");
        }
    }

    #[test]
    fn a_kernel_that_cannot_runs_nothing_of_root() {
        assert_eq!(SuidPolicy::Impossible.allows(0).unwrap_err().code, ErrorCode::CannotStart);
        assert!(SuidPolicy::Impossible.allows(1000).is_ok() && SuidPolicy::Needless.allows(0).is_ok());
    }
}

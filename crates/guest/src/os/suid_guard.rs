//! Prevents commands from leaving set-id files in directories of the host.
//!
//! Root inside a container of a rootful engine is root outside, or its files belong to root where a directory of the host
//! is mounted with mapped ids; without root, a command has the uid of Coracle's user outside. A set-id file that it leaves
//! in a directory of the host would let any other user of the host act as root or as that user. So no command sets such a
//! bit itself: its filter refuses the calls that would create a file with one, and suspends those that would add one to a
//! file's mode until the guest has answered them.
//!
//! The guest makes the change itself, with the caller's ids: it opens the file, checks which mount it is on, and sets the
//! mode through the open descriptor. On the container's own files the bits remain, so that packages with set-id files can
//! be installed; on all other mounts they are removed. Memory that the caller could change concurrently is read only once.
//!
//! Only the mount of `/` counts as the container's own. Engines bind files of the host into every container
//! (`/etc/hosts`), so the guard is always needed.

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

/// Calls that are handled concurrently, for all callers together: each takes a thread, and file requests of the host need
/// threads too.
const MAX_CALLS: usize = 2;

/// The error for a caller for which the guest cannot act.
const REFUSED: Errno = Errno::PERM;

/// Whether and how commands are prevented from leaving set-id files.
#[derive(Clone, Debug)]
pub(crate) enum SuidPolicy {
    /// The kernel does not support the guard, but uid 0 inside is another user outside, also in files of the host.
    NotNeeded,
    /// No process inside is root, PID 1 included.
    Rootless,
    /// The guard runs, by a filter with notifications.
    Guarded(Arc<SuidBroker>),
    /// The kernel does not support the guard, and root inside is root in files of the host.
    Unsupported,
}

/// Handles the suspended calls.
#[derive(Debug)]
pub(crate) struct SuidBroker {
    own: OwnMount,
    flags: u64,
    permits: Arc<Semaphore>,
}

/// Handles suspended calls of one command's processes until it is dropped. After that they fail.
#[derive(Debug)]
pub(crate) struct ListenerTask(AbortHandle);

impl Drop for ListenerTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SuidPolicy {
    /// Chooses the policy for the container of this PID 1.
    pub(crate) fn find() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::Rootless;
        }
        // A kernel that has flags for a listener can also pass files to callers.
        match listener::flags().and_then(|flags| Ok((flags, OwnMount::find(flags != 0)?))) {
            Ok((flags, own)) => {
                Self::Guarded(Arc::new(SuidBroker { own, flags, permits: Arc::new(Semaphore::new(MAX_CALLS)) }))
            }
            Err(_) if is_another_user() => Self::NotNeeded,
            Err(_) => Self::Unsupported,
        }
    }

    pub(crate) fn filter(&self) -> Filter {
        match self {
            Self::Guarded(broker) => Filter::with_listener(broker.flags),
            Self::Rootless => Filter::strict(),
            Self::NotNeeded | Self::Unsupported => Filter::new(),
        }
    }

    /// Checks whether a command may run as that user.
    ///
    /// # Errors
    /// [`ErrorCode::CannotStart`]: root, if the guard is needed and the kernel does not support it.
    pub(crate) fn check_user(&self, uid: u32) -> Result<(), RpcError> {
        match self {
            Self::Unsupported if uid == 0 => Err(RpcError::new(
                ErrorCode::CannotStart,
                "this kernel cannot prevent root from stopping set-id files in directories of the host (that needs \
                 Linux 5.8 with seccomp's user notification), so commands cannot run as root",
            )),
            _ => Ok(()),
        }
    }

    /// Starts handling the calls of a command that has a listener.
    pub(crate) fn start_listener(&self, listener: Option<OwnedFd>) -> Option<ListenerTask> {
        match (self, listener) {
            (Self::Guarded(broker), Some(listener)) => {
                let task = tokio::spawn(serve(Arc::clone(broker), Arc::new(listener)));
                Some(ListenerTask(task.abort_handle()))
            }
            _ => None,
        }
    }
}

/// Handles one call after the other, until no process has the filter any more.
async fn serve(broker: Arc<SuidBroker>, listener: Arc<OwnedFd>) {
    let Ok(calls) = listener::watch(Arc::clone(&listener)) else { return };
    while let Ok(mut ready) = calls.readable().await {
        match listener::pending(&*listener) {
            ListenerEvent::Over => return,
            ListenerEvent::Nothing => ready.clear_ready(),
            ListenerEvent::Call => {
                let Ok(permit) = Arc::clone(&broker.permits).acquire_owned().await else { return };
                let (broker, listener) = (Arc::clone(&broker), Arc::clone(&listener));
                let handled = tokio::task::spawn_blocking(move || {
                    let _permit = permit;
                    broker.handle(&listener);
                });
                // After a panic its caller gets no reply, but later calls are handled.
                let _ = handled.await;
            }
        }
    }
}

impl SuidBroker {
    /// Receives one call and replies to it. Errors of the reply are ignored: the caller may have ended.
    fn handle(&self, listener: &OwnedFd) {
        let Ok(call) = listener::receive(listener) else { return };
        let result =
            caller::run_as_caller(&call, listener, |wanted| self.own.change(wanted)).and_then(
                |outcome| match outcome {
                    ChangeOutcome::Changed => listener::reply(listener, call.id, None),
                    ChangeOutcome::Create { file, cloexec } => {
                        listener::add_descriptor(listener, call.id, &file, cloexec)
                    }
                },
            );
        if let Err(errno) = result {
            let _ = listener::reply(listener, call.id, Some(errno));
        }
    }
}

/// Whether root inside is another user in files of the host. Without `uid_map` the kernel has no user namespaces. A mount
/// with mapped ids may map them back.
fn is_another_user() -> bool {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}"));
    read("uid_map").is_ok_and(|it| is_mapped_away(&it)) && read("mountinfo").is_ok_and(|it| !has_mapped_mount(&it))
}

/// Whether uid 0 inside is not uid 0 outside, by lines of "inside outside count".
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
    fn an_idmapped_mount_is_recognised_only_by_its_options() {
        let plain = "31 29 0:45 /idmapped /idmapped rw,relatime shared:1 - ext4 idmapped rw,idmapped\n";
        assert!(!has_mapped_mount(plain) && !has_mapped_mount(""));
        let mapped = "32 29 254:0 /home/a /work rw,nosuid,nodev,relatime,idmapped - ext4 /dev/vda rw\n";
        assert!(has_mapped_mount(&[plain, mapped].concat()));
    }

    #[test]
    fn only_a_mapping_of_uid_0_to_another_uid_maps_root_away() {
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
    fn an_unsupported_kernel_refuses_commands_of_root() {
        assert_eq!(SuidPolicy::Unsupported.check_user(0).unwrap_err().code, ErrorCode::CannotStart);
        assert!(SuidPolicy::Unsupported.check_user(1000).is_ok() && SuidPolicy::NotNeeded.check_user(0).is_ok());
    }
}

//! Makes a child that shares this process's memory until it is another program.
//!
//! Copying the memory is most of the cost of a `fork`, and then every page that either side writes is copied once more.
//! So the child gets a stack of its own and runs beside us like a thread, which is not waited for: an exec can hang,
//! and PID 1 must not. The memory that it reads is lent to it, and reclaimed when its status socket ends; memory that
//! is never reclaimed leaks.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;

use super::child::{self, ChildArgs};
use crate::os::raw_syscall;

/// A child needs a few KiB.
const STACK: usize = 64 << 10;

/// Stacks that are kept for the next child, since their pages are there already.
const MAX_CACHED: usize = 16;

static STACKS: Mutex<Vec<Stack>> = Mutex::new(Vec::new());

/// Memory that a child uses. Dropping it leaks the memory, which the child may still use.
#[derive(Debug)]
pub(super) struct ChildMemory {
    orders: NonNull<ChildArgs>,
    stack: Stack,
}

// SAFETY: both are memory that only this value and the child use, and neither belongs to a thread.
unsafe impl Send for ChildMemory {}

#[derive(Debug)]
struct Stack(NonNull<[MaybeUninit<u128>]>);

// SAFETY: as above.
unsafe impl Send for Stack {}

impl Stack {
    fn new() -> Self {
        let kept = STACKS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| {
            let made = Box::leak(Box::new_uninit_slice(STACK / size_of::<u128>()));
            Self(NonNull::from(made))
        })
    }

    /// Stacks grow downwards.
    fn top(&self) -> *mut c_void {
        // SAFETY: one past the end of what was allocated.
        unsafe { self.0.cast::<MaybeUninit<u128>>().add(self.0.len()).as_ptr().cast() }
    }

    fn give_back(self) {
        let mut kept = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MAX_CACHED {
            kept.push(self);
        } else {
            // SAFETY: it came from a box, and the child that used it is gone.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl ChildMemory {
    /// Reclaims the memory that was lent.
    ///
    /// # Safety
    /// The child is another program or gone.
    pub(super) unsafe fn take_back(self) -> Box<ChildArgs> {
        self.stack.give_back();
        // SAFETY: it came from a box, and the child no longer uses it.
        unsafe { Box::from_raw(self.orders.as_ptr()) }
    }
}

/// Starts a child that follows the orders, with all signals blocked, so that none is handled in it by what was installed
/// for this process.
///
/// # Errors
/// The kernel's; then there is no child.
pub(super) fn spawn(orders: ChildArgs) -> io::Result<(u32, ChildMemory)> {
    let loan = ChildMemory { orders: NonNull::from(Box::leak(Box::new(orders))), stack: Stack::new() };
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: the sets are as long as the kernel's and alive.
    unsafe { mask(&raw const all, &raw mut before) };
    let shared = if may_share() { clone(&loan, libc::CLONE_VM) } else { Err(Errno::INVAL) };
    let made = match shared {
        // Something between us and a kernel knows no such children.
        Err(Errno::INVAL | Errno::NOSYS) => clone(&loan, 0),
        shared => shared,
    };
    // SAFETY: as above.
    unsafe { mask(&raw const before, ptr::null_mut()) };
    match made {
        Ok(pid) => Ok((pid, loan)),
        Err(errno) => {
            // SAFETY: there is no child.
            drop(unsafe { loan.take_back() });
            Err(errno.into())
        }
    }
}

unsafe fn mask(set: *const u64, before: *mut u64) {
    let arguments = [libc::SIG_SETMASK as usize, set as usize, before as usize, size_of::<u64>(), 0];
    // SAFETY: as the caller promises. It cannot fail with these arguments.
    let _ = unsafe { raw_syscall::call(libc::SYS_rt_sigprocmask, arguments) };
}

fn clone(loan: &ChildMemory, memory: c_int) -> Result<u32, Errno> {
    // SAFETY: stack and orders stay until the child needs them no more, see `ChildMemory`. The child makes bare system calls
    // only: it has the thread pointer of this thread, and so its `errno` and all else that is a thread's own.
    let pid = unsafe { libc::clone(enter, loan.stack.top(), memory | libc::SIGCHLD, loan.orders.as_ptr().cast()) };
    u32::try_from(pid).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

extern "C" fn enter(orders: *mut c_void) -> c_int {
    // SAFETY: `clone` was given them, and nothing else touches them before the child is gone.
    child::run(unsafe { &mut *orders.cast::<ChildArgs>() })
}

/// Whether a child may become another user while it shares our memory. The kernel then sets the `dumpable` flag of that
/// memory to `suid_dumpable`; with 1, a debugging mode, that user's processes could read and write it.
pub(crate) fn may_share() -> bool {
    static SETTING: OnceLock<Option<File>> = OnceLock::new();
    let setting = SETTING.get_or_init(|| File::open("/proc/sys/fs/suid_dumpable").ok());
    let mut text = [0; 4];
    let read = setting.as_ref().and_then(|it| it.read_at(&mut text, 0).ok());
    read.is_some_and(|_| matches!(text[0], b'0' | b'2'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_used_again() {
        let top = {
            let stack = Stack::new();
            let top = stack.top() as usize;
            assert_eq!(top % 16, 0);
            stack.give_back();
            top
        };
        let tops: Vec<_> =
            std::iter::repeat_with(Stack::new).take(MAX_CACHED + 1).map(|it| it.top() as usize).collect();
        assert!(tops.contains(&top));
    }
}

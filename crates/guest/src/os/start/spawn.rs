//! Creates a child that shares this process's memory until it executes another program.
//!
//! Copying the memory is most of the cost of a `fork`, and afterwards each page that either side writes is copied as well.
//! So the child gets its own stack and runs concurrently like a thread. The guest does not block on it: an exec can hang,
//! and PID 1 must not. The child borrows the memory that it reads; it is reclaimed when the status socket closes, and
//! leaks if that never happens.

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

/// A child needs only a few KiB.
const STACK: usize = 64 << 10;

/// Stacks that are cached for the next child, since their pages are already mapped.
const MAX_CACHED: usize = 16;

static STACKS: Mutex<Vec<Stack>> = Mutex::new(Vec::new());

/// Memory that a child uses. Dropping the value leaks the memory, which the child may still use.
#[derive(Debug)]
pub(super) struct ChildMemory {
    args: NonNull<ChildArgs>,
    stack: Stack,
}

// SAFETY: only this value and the child use the memory, and none of it belongs to a thread.
unsafe impl Send for ChildMemory {}

#[derive(Debug)]
struct Stack(NonNull<[MaybeUninit<u128>]>);

// SAFETY: as above.
unsafe impl Send for Stack {}

impl Stack {
    fn new() -> Self {
        let cached = STACKS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        cached.unwrap_or_else(|| {
            let stack = Box::leak(Box::new_uninit_slice(STACK / size_of::<u128>()));
            Self(NonNull::from(stack))
        })
    }

    /// Stacks grow downwards.
    fn top(&self) -> *mut c_void {
        // SAFETY: one past the end of the allocation.
        unsafe { self.0.cast::<MaybeUninit<u128>>().add(self.0.len()).as_ptr().cast() }
    }

    fn give_back(self) {
        let mut cached = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.len() < MAX_CACHED {
            cached.push(self);
        } else {
            // SAFETY: the pointer came from a box, and the child that used it has ended.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl ChildMemory {
    /// Reclaims the memory of a child.
    ///
    /// # Safety
    /// The child must have executed another program or ended.
    pub(super) unsafe fn take_back(self) -> Box<ChildArgs> {
        self.stack.give_back();
        // SAFETY: the pointer came from a box, and the child no longer uses it.
        unsafe { Box::from_raw(self.args.as_ptr()) }
    }
}

/// Starts a child with all signals blocked, so that no handler of this process runs in it.
///
/// # Errors
/// Fails if the kernel creates no child.
pub(super) fn spawn(args: ChildArgs) -> io::Result<(u32, ChildMemory)> {
    let memory = ChildMemory { args: NonNull::from(Box::leak(Box::new(args))), stack: Stack::new() };
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: the sets have the kernel's size and are alive.
    unsafe { mask(&raw const all, &raw mut before) };
    let shared = if may_share() { clone(&memory, libc::CLONE_VM) } else { Err(Errno::INVAL) };
    let result = match shared {
        // A sandboxed kernel, such as gVisor, may not support shared memory here.
        Err(Errno::INVAL | Errno::NOSYS) => clone(&memory, 0),
        shared => shared,
    };
    // SAFETY: as above.
    unsafe { mask(&raw const before, ptr::null_mut()) };
    match result {
        Ok(pid) => Ok((pid, memory)),
        Err(errno) => {
            // SAFETY: there is no child.
            drop(unsafe { memory.take_back() });
            Err(errno.into())
        }
    }
}

unsafe fn mask(set: *const u64, before: *mut u64) {
    let arguments = [libc::SIG_SETMASK as usize, set as usize, before as usize, size_of::<u64>(), 0];
    // SAFETY: the caller guarantees it. The call cannot fail with these arguments.
    let _ = unsafe { raw_syscall::call(libc::SYS_rt_sigprocmask, arguments) };
}

fn clone(memory: &ChildMemory, share_flag: c_int) -> Result<u32, Errno> {
    // SAFETY: stack and arguments live until the child no longer needs them, see `ChildMemory`. The child makes only raw
    // system calls: it has the thread pointer of this thread, and therefore its `errno` and thread-local data.
    let pid =
        unsafe { libc::clone(enter, memory.stack.top(), share_flag | libc::SIGCHLD, memory.args.as_ptr().cast()) };
    u32::try_from(pid).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

extern "C" fn enter(args: *mut c_void) -> c_int {
    // SAFETY: `clone` received the pointer, and no other code touches the arguments before the child has ended.
    child::run(unsafe { &mut *args.cast::<ChildArgs>() })
}

/// Whether a child may switch its user while it shares this process's memory. The kernel then sets the `dumpable` flag of
/// the memory to `suid_dumpable`; with 1, a debugging mode, that user's processes could read and write the memory.
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
    fn a_stack_is_reused() {
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

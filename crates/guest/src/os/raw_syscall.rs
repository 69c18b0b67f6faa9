//! System calls that do not change `errno`, for a child that shares its parent's memory.
#![expect(unsafe_code, reason = "a system call without the library has no safe wrapper")]

use std::arch::asm;

use libc::c_long;
use rustix::io::{Errno, Result};

/// Makes a system call. Unused arguments are zeros.
///
/// # Safety
/// Pointers among the arguments must be valid for the kernel, and no other code in the process may rely on what the call
/// changes.
pub(crate) unsafe fn call(number: c_long, arguments: [usize; 5]) -> Result<usize> {
    // SAFETY: the caller guarantees it.
    let result = unsafe { trap(number, arguments) };
    match i32::try_from(result) {
        Ok(errno @ -4095..=-1) => Err(Errno::from_raw_os_error(-errno)),
        _ => Ok(result.cast_unsigned()),
    }
}

/// Starts a session. Does not use rustix, which expects a process id other than 0: gVisor returns 0.
pub(crate) fn setsid() -> Result<()> {
    // SAFETY: it changes only the session of this process.
    unsafe { call(libc::SYS_setsid, [0; 5]) }.map(drop)
}

#[cfg(target_arch = "x86_64")]
unsafe fn trap(number: c_long, [one, two, three, four, five]: [usize; 5]) -> isize {
    let mut result = number as isize;
    // SAFETY: the overwritten registers are declared, and the call uses no stack of this program.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") one,
            in("rsi") two,
            in("rdx") three,
            in("r10") four,
            in("r8") five,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
unsafe fn trap(number: c_long, [one, two, three, four, five]: [usize; 5]) -> isize {
    let mut result = one as isize;
    // SAFETY: the overwritten registers are declared, and the call uses no stack of this program.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") result,
            in("x1") two,
            in("x2") three,
            in("x3") four,
            in("x4") five,
            options(nostack),
        );
    }
    result
}

//! System calls that leave `errno` alone, for a child that runs beside its parent on the same memory.
#![expect(unsafe_code, reason = "a system call without the library has no safe wrapper")]

use std::arch::asm;

use libc::c_long;
use rustix::io::{Errno, Result};

/// Makes a call. Arguments that it does not have are zeros.
///
/// # Safety
/// Pointers among the arguments are what the kernel expects there, and nothing else in the process relies on what the
/// call changes.
pub(crate) unsafe fn call(number: c_long, arguments: [usize; 5]) -> Result<usize> {
    // SAFETY: as the caller promises.
    let answer = unsafe { trap(number, arguments) };
    match i32::try_from(answer) {
        Ok(errno @ -4095..=-1) => Err(Errno::from_raw_os_error(-errno)),
        _ => Ok(answer.cast_unsigned()),
    }
}

/// Begins a session. rustix takes the answer for a number of a process, which is not 0, and gVisor answers 0.
pub(crate) fn setsid() -> Result<()> {
    // SAFETY: it changes the session of this process alone.
    unsafe { call(libc::SYS_setsid, [0; 5]) }.map(drop)
}

#[cfg(target_arch = "x86_64")]
unsafe fn trap(number: c_long, [one, two, three, four, five]: [usize; 5]) -> isize {
    let mut answer = number as isize;
    // SAFETY: what the kernel overwrites is named, and it uses no stack of ours.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") answer,
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
    answer
}

#[cfg(target_arch = "aarch64")]
unsafe fn trap(number: c_long, [one, two, three, four, five]: [usize; 5]) -> isize {
    let mut answer = one as isize;
    // SAFETY: what the kernel overwrites is named, and it uses no stack of ours.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") answer,
            in("x1") two,
            in("x2") three,
            in("x3") four,
            in("x4") five,
            options(nostack),
        );
    }
    answer
}

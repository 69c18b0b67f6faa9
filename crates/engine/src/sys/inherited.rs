//! Descriptors that this process inherited from its caller.
#![expect(unsafe_code, reason = "a system call without a safe wrapper")]

/// Closes all descriptors above standard error in the programs that this process executes from now on. Coracle's own
/// have that mark already. Does nothing on kernels before 5.11.
pub fn close_inherited_on_exec() {
    // SAFETY: changes only a flag of this process's descriptors.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

#[cfg(test)]
mod tests {
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    use super::close_inherited_on_exec;

    #[test]
    fn an_inherited_file_is_closed_on_exec() {
        let file = std::fs::File::open("/dev/null").unwrap();
        fcntl_setfd(&file, FdFlags::empty()).unwrap();
        close_inherited_on_exec();
        assert!(fcntl_getfd(&file).unwrap().contains(FdFlags::CLOEXEC));
    }
}

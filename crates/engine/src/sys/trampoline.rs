//! A program of a few instructions that executes another one.
//!
//! Until a child executes a program, its `/proc/self/exe` is the engine's own program. A program of the image may be a link to
//! that path, or a script with it as its interpreter. The engine's program then runs inside, and root inside can open its
//! file (CVE-2019-5736). If the engine runs without root, that file belongs to a user of the container. So the child executes
//! a sealed file in memory, which executes the program of the image.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Printed before an exit with code 126 or 127 if the program cannot be executed.
pub(crate) const MESSAGE: &[u8; 31] = b"the program cannot be executed\n";

/// The machine number for the ELF header, and the code; `None` for other architectures.
#[cfg(target_arch = "x86_64")]
const MACHINE: Option<(u16, &[u8])> = Some((62, X86_64));
#[cfg(target_arch = "aarch64")]
const MACHINE: Option<(u16, &[u8])> = Some((183, AARCH64));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: Option<(u16, &[u8])> = None;

/// The code for x86-64. The first argument is empty, the second is the path to execute, the others are the arguments of that
/// program. If the first argument is not empty, a script or a link executed it, and it exits with 126.
///
/// ```text
///     mov rcx, [rsp];  cmp rcx, 2;  jb bad
///     mov rax, [rsp + 8];  cmp byte ptr [rax], 0;  jne bad
///     mov rdi, [rsp + 16];  lea rsi, [rsp + 24];  lea rdx, [rsp + rcx * 8 + 16]
///     mov eax, 59;  syscall;  mov rbx, rax                                            # execve
///     mov edi, 2;  lea rsi, [rip + msg];  mov edx, 31;  mov eax, 1;  syscall          # write
///     mov edi, 127;  cmp rbx, -2;  je out;  cmp rbx, -20;  je out                     # ENOENT, ENOTDIR
/// bad: mov edi, 126
/// out: mov eax, 231;  syscall                                                         # exit_group
/// msg:
/// ```
#[cfg(target_arch = "x86_64")]
const X86_64: &[u8] = &[
    0x48, 0x8b, 0x0c, 0x24, 0x48, 0x83, 0xf9, 0x02, 0x72, 0x4c, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x80, 0x38, 0x00, 0x75,
    0x42, 0x48, 0x8b, 0x7c, 0x24, 0x10, 0x48, 0x8d, 0x74, 0x24, 0x18, 0x48, 0x8d, 0x54, 0xcc, 0x10, 0xb8, 0x3b, 0x00,
    0x00, 0x00, 0x0f, 0x05, 0x48, 0x89, 0xc3, 0xbf, 0x02, 0x00, 0x00, 0x00, 0x48, 0x8d, 0x35, 0x29, 0x00, 0x00, 0x00,
    0xba, 0x1f, 0x00, 0x00, 0x00, 0xb8, 0x01, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xbf, 0x7f, 0x00, 0x00, 0x00, 0x48, 0x83,
    0xfb, 0xfe, 0x74, 0x0b, 0x48, 0x83, 0xfb, 0xec, 0x74, 0x05, 0xbf, 0x7e, 0x00, 0x00, 0x00, 0xb8, 0xe7, 0x00, 0x00,
    0x00, 0x0f, 0x05,
];

/// The same for 64-bit Arm.
///
/// ```text
///     ldr x0, [sp];  cmp x0, #2;  b.lo bad
///     ldr x1, [sp, #8];  ldrb w1, [x1];  cbnz w1, bad
///     add x2, sp, #16;  add x2, x2, x0, lsl #3;  ldr x0, [sp, #16];  add x1, sp, #24
///     mov x8, #221;  svc #0;  mov x19, x0                                             // execve
///     mov x0, #2;  adr x1, msg;  mov x2, #31;  mov x8, #64;  svc #0                   // write
///     mov x0, #127;  cmn x19, #2;  b.eq out;  cmn x19, #20;  b.eq out                 // ENOENT, ENOTDIR
/// bad: mov x0, #126
/// out: mov x8, #94;  svc #0                                                           // exit_group
/// msg:
/// ```
#[cfg(target_arch = "aarch64")]
const AARCH64: &[u8] = &[
    0xe0, 0x03, 0x40, 0xf9, 0x1f, 0x08, 0x00, 0xf1, 0xa3, 0x02, 0x00, 0x54, 0xe1, 0x07, 0x40, 0xf9, 0x21, 0x00, 0x40,
    0x39, 0x41, 0x02, 0x00, 0x35, 0xe2, 0x43, 0x00, 0x91, 0x42, 0x0c, 0x00, 0x8b, 0xe0, 0x0b, 0x40, 0xf9, 0xe1, 0x63,
    0x00, 0x91, 0xa8, 0x1b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xf3, 0x03, 0x00, 0xaa, 0x40, 0x00, 0x80, 0xd2, 0x81,
    0x01, 0x00, 0x10, 0xe2, 0x03, 0x80, 0xd2, 0x08, 0x08, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xe0, 0x0f, 0x80, 0xd2,
    0x7f, 0x0a, 0x00, 0xb1, 0x80, 0x00, 0x00, 0x54, 0x7f, 0x52, 0x00, 0xb1, 0x40, 0x00, 0x00, 0x54, 0xc0, 0x0f, 0x80,
    0xd2, 0xc8, 0x0b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4,
];

/// Creates the file for one execution, in less than a millisecond. It is not reused: processes of the container reach it
/// through `/proc/PID/exe`, and could open it for writing or change its mode, so that it cannot be executed any more.
///
/// # Errors
/// If it cannot be created. There is no fallback, since executing the program directly would not be safe.
pub(crate) fn trampoline() -> io::Result<OwnedFd> {
    let (machine, code) = MACHINE.ok_or(io::ErrorKind::Unsupported)?;
    sealed_file(&image(machine, code))
}

fn sealed_file(content: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::EXEC;
    let mut file = File::from(memfd_create("coracle-exec", flags)?);
    file.write_all(content)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

/// Builds the file: an ELF header, one segment with the whole file, and the code.
fn image(machine: u16, code: &[u8]) -> Vec<u8> {
    const EXECUTABLE: u16 = 2;
    const LOADED: u32 = 1;
    const READABLE_AND_EXECUTABLE: u32 = 5;
    const ADDRESS: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let size = HEADERS + (code.len() + MESSAGE.len()) as u64;
    // 64 bits, little-endian.
    let mut image = b"\x7fELF\x02\x01\x01".to_vec();
    image.resize(16, 0);
    image.extend([EXECUTABLE, machine].into_iter().flat_map(u16::to_le_bytes));
    image.extend(1u32.to_le_bytes());
    image.extend([ADDRESS + HEADERS, 64, 0].into_iter().flat_map(u64::to_le_bytes));
    image.extend(0u32.to_le_bytes());
    image.extend([64, 56, 1, 0, 0, 0].into_iter().flat_map(u16::to_le_bytes));
    image.extend([LOADED, READABLE_AND_EXECUTABLE].into_iter().flat_map(u32::to_le_bytes));
    image.extend([0, ADDRESS, ADDRESS, size, size, 0x1_0000].into_iter().flat_map(u64::to_le_bytes));
    image.extend(code);
    image.extend(MESSAGE);
    image
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::fd::{AsFd as _, AsRawFd as _};
    use std::os::unix::fs::PermissionsExt as _;

    use coracle_skips::{NEEDS_ROOT, skip};
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::super::{ChildPlan, FailedAt, Namespaces, Program, Step, spawn};
    use super::*;

    fn exit_of(path: &str, words: &[&str]) -> Result<Option<i32>, FailedAt> {
        let text = |it: &str| CString::new(it).unwrap();
        let process = spawn(&ChildPlan {
            groups: Vec::new(),
            user_namespace: None,
            namespaces: Namespaces::New { network: false },
            steps: vec![Step::Trampoline(trampoline().unwrap()), Step::CloseFrom(4)],
            program: Program {
                paths: vec![text("/nowhere"), text(path)],
                argv: words.iter().copied().map(text).collect(),
                env: vec![text("NAME=value")],
            },
        });
        let process = process.map_err(|err| err.at)?;
        let status = waitid(WaitId::PidFd(process.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap().unwrap();
        Ok(status.exit_status())
    }

    #[test]
    fn a_program_is_executed_and_never_the_one_of_this_process() {
        if !rustix::process::geteuid().is_root() {
            return skip(NEEDS_ROOT);
        }
        assert_eq!(exit_of("/bin/sh", &["sh", "-c", "[ $0$NAME = xvalue ] && exit 7", "x"]), Ok(Some(7)));
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "#!/proc/self/exe\n").unwrap();
        assert_eq!(exit_of(script.to_str().unwrap(), &["script"]), Err(FailedAt::Program));
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(exit_of(script.to_str().unwrap(), &["script"]), Ok(Some(126)));
        assert_eq!(exit_of("/proc/self/exe", &["exe"]), Ok(Some(126)));
        assert_eq!(exit_of("/none", &["none"]), Err(FailedAt::Program));
        assert_eq!(exit_of("/bin", &["bin"]), Err(FailedAt::Program));
    }

    #[test]
    fn a_file_that_a_container_got_hold_of_stops_no_other_execution() {
        if !rustix::process::geteuid().is_root() {
            return skip(NEEDS_ROOT);
        }
        let file = trampoline().unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let _writer = File::options().write(true).open(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o0)).unwrap();
        assert_eq!(exit_of("/bin/sh", &["sh", "-c", "exit 7"]), Ok(Some(7)));
    }
}

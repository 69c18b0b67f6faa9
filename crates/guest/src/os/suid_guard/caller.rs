//! The caller of a suspended call, and the files named in the call.
//!
//! All files of the caller are opened before the kernel confirms that the caller still waits, and are used after that.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::abort;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::REFUSED;
use super::listener::{PendingCall, is_valid};
use crate::os::as_user::as_user;
use crate::os::machine::Ids;
use crate::os::start::may_share;

/// Longest path in bytes, with its NUL, that the kernel accepts.
const MAX_PATH: usize = 4096;

/// A thread's identity according to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CallerThread {
    thread: u32,
    process: u32,
    ids: Ids,
    effective: CapabilitySet,
    /// Permission bits that the caller's new files do not get.
    umask: u32,
}

/// A call with its arguments as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RawCall {
    /// Changes the mode of an open file.
    Open { number: i32, mode: u32 },
    /// Changes the mode of the file at a path.
    Named { path: PathArgument, mode: u32 },
    /// Creates a file.
    Create { path: PathArgument, flags: i32, mode: u32 },
}

/// A path in the caller's memory; a relative one starts at that descriptor, or at the caller's working directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PathArgument {
    from: i32,
    address: u64,
}

/// A caller's request, with all of its files opened.
#[derive(Debug)]
pub(super) enum ResolvedCall {
    /// Change the mode of an open file.
    Open { file: OwnedFd, mode: u32 },
    /// Change the mode of the file at a path.
    Named { path: Path, mode: u32 },
    /// Create a file that does not exist, with this mode, from which the caller's umask is removed already.
    Create { path: Path, flags: i32, mode: u32 },
}

/// A path, the directory where it starts if it is relative, and the caller's root directory.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) path: CString,
    pub(super) from: Option<OwnedFd>,
    pub(super) root: OwnedFd,
}

/// Runs `act` with exactly the caller's permissions.
///
/// # Errors
/// Returns the errors of `act`, or the reason why the call cannot be created for that caller.
pub(super) fn run_as_caller<T>(
    call: &PendingCall,
    listener: &OwnedFd,
    act: impl FnOnce(ResolvedCall) -> Result<T>,
) -> Result<T> {
    let raw_call = RawCall::from_notification(call).ok_or(REFUSED)?;
    let caller = CallerThread::from_thread(call.thread)?;
    // This thread is root. For another user it changes its ids, after which the kernel resets who may read its memory.
    if (caller.ids.uid, caller.ids.gid) != (0, 0) && !may_share() {
        return Err(REFUSED);
    }
    let run = || {
        let _restore = RestoreCaps::now()?;
        raise()?;
        let wanted = caller.open(raw_call)?;
        is_valid(listener, call.id)?;
        lower(caller.effective)?;
        act(wanted)
    };
    as_user(&caller.ids, run)?
}

impl RawCall {
    /// Returns `None` for other calls, of which the filter sends no notification.
    fn from_notification(call: &PendingCall) -> Option<Self> {
        let [one, two, three, four, ..] = call.arguments;
        let mode = |it: u64| it as u32 & 0o7777;
        let here = |address| PathArgument { from: libc::AT_FDCWD, address };
        let from = |number, address| PathArgument { from: lower_half(number), address };
        Some(match i64::from(call.number) {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => Self::Named { path: here(one), mode: mode(two) },
            libc::SYS_fchmod => Self::Open { number: lower_half(one), mode: mode(two) },
            libc::SYS_fchmodat => Self::Named { path: from(one, two), mode: mode(three) },
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => Self::Create { path: here(one), flags: lower_half(two), mode: mode(three) },
            libc::SYS_openat => Self::Create { path: from(one, two), flags: lower_half(three), mode: mode(four) },
            _ => return None,
        })
    }
}

fn lower_half(argument: u64) -> i32 {
    argument as u32 as i32
}

impl CallerThread {
    fn from_thread(thread: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{thread}/status")).map_err(|_| REFUSED)?;
        Self::read(thread, &status).ok_or(REFUSED)
    }

    /// Returns `None` for a thread with several user ids: the guest cannot act for it.
    fn read(thread: u32, status: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(':'));
        let numbers =
            |name| -> Option<Vec<u32>> { field(name)?.split_ascii_whitespace().map(|it| it.parse().ok()).collect() };
        let same = |name| match numbers(name)?[..] {
            [real, effective, saved, files] if [effective, saved, files] == [real; 3] => Some(real),
            _ => None,
        };
        Some(Self {
            thread,
            process: *numbers("Tgid")?.first()?,
            ids: Ids { uid: same("Uid")?, gid: same("Gid")?, groups: numbers("Groups")? },
            effective: CapabilitySet::from_bits_retain(u64::from_str_radix(field("CapEff")?.trim(), 16).ok()?),
            umask: u32::from_str_radix(field("Umask")?.trim(), 8).ok()?,
        })
    }

    fn open(&self, call: RawCall) -> Result<ResolvedCall> {
        match call {
            RawCall::Open { number, mode } => Ok(ResolvedCall::Open { file: self.open_fd(self.thread, number)?, mode }),
            RawCall::Named { path, mode } => {
                let text = self.read_path(path.address)?;
                match self.open_file_number(&text) {
                    Some((process, number)) => Ok(ResolvedCall::Open { file: self.open_fd(process, number)?, mode }),
                    None => Ok(ResolvedCall::Named { path: self.path(path.from, text)?, mode }),
                }
            }
            RawCall::Create { path, flags, mode } => {
                let path = self.path(path.from, self.read_path(path.address)?)?;
                Ok(ResolvedCall::Create { path, flags, mode: mode & !self.umask })
            }
        }
    }

    fn path(&self, from: i32, path: CString) -> Result<Path> {
        let from = match from {
            _ if path.as_bytes().first() == Some(&b'/') => None,
            libc::AT_FDCWD => Some(self.open_link("cwd")?),
            number => Some(self.open_fd(self.thread, number)?),
        };
        Ok(Path { path, from, root: self.open_link("root")? })
    }

    /// Parses the path by which C libraries name an open file: opened by the guest, it would be a file of the guest.
    fn open_file_number(&self, path: &CStr) -> Option<(u32, i32)> {
        let (process, number) = path.to_str().ok()?.strip_prefix("/proc/")?.split_once("/fd/")?;
        let process = match process {
            "thread-self" => self.thread,
            "self" => self.process,
            _ if process.parse() == Ok(self.process) => self.process,
            _ => return None,
        };
        Some((process, number.parse().ok().filter(|it| *it >= 0)?))
    }

    fn open_fd(&self, process: u32, number: i32) -> Result<OwnedFd> {
        let opened = open_path(&format!("/proc/{process}/fd/{number}"));
        opened.map_err(|errno| if errno == Errno::NOENT { Errno::BADF } else { errno })
    }

    fn open_link(&self, what: &str) -> Result<OwnedFd> {
        open_path(&format!("/proc/{}/{what}", self.thread))
    }

    fn read_path(&self, address: u64) -> Result<CString> {
        let mut bytes = vec![0; MAX_PATH];
        let memory = File::open(format!("/proc/{}/mem", self.thread)).map_err(|_| REFUSED)?;
        // A read ends where the caller's memory ends.
        let count = memory.read_at(&mut bytes, address).map_err(|_| Errno::FAULT)?;
        let whole = if count == MAX_PATH { Errno::NAMETOOLONG } else { Errno::FAULT };
        CStr::from_bytes_until_nul(&bytes[..count]).map(CStr::to_owned).map_err(|_| whole)
    }
}

/// Opens a path of any kind without access to its content.
fn open_path(path: &str) -> Result<OwnedFd> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| match errno {
        Errno::ACCESS => REFUSED,
        other => other,
    })
}

/// Raises all permitted capabilities, which are needed to inspect a caller with any of them.
fn raise() -> Result<()> {
    let now = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: now.permitted, ..now })
}

fn lower(effective: CapabilitySet) -> Result<()> {
    let now = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: effective & now.permitted, ..now })
}

/// Restores the capabilities of a thread.
struct RestoreCaps(CapabilitySets);

impl RestoreCaps {
    fn now() -> Result<Self> {
        capabilities(None).map(Self)
    }
}

impl Drop for RestoreCaps {
    fn drop(&mut self) {
        if set_capabilities(None, self.0).is_err() {
            abort(); // As in `as_user`: the thread would serve the next call with another caller's capabilities.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tUid: 0\nUmask:\t0027\nTgid:\t41\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t8 9 \n\
                          CapPrm:\t00000000000000cb\nCapEff:\t0000000000000009\n";

    fn caller(status: &str) -> Option<CallerThread> {
        CallerThread::read(42, status)
    }

    #[test]
    fn an_incomplete_or_ambiguous_caller_is_rejected() {
        let read = caller(STATUS).unwrap();
        assert_eq!((read.thread, read.process, read.umask), (42, 41, 0o27));
        assert_eq!(read.ids, Ids { uid: 7, gid: 8, groups: vec![8, 9] });
        assert_eq!(read.effective, CapabilitySet::CHOWN | CapabilitySet::FOWNER);
        for (from, to) in [("7\t7\t7\t7", "0\t7\t0\t7"), ("8\t8\t8\t8", "8\t8\t0\t8"), ("CapEff", "Cap"), ("0027", "x")]
        {
            assert_eq!(caller(&STATUS.replacen(from, to, 1)), None, "{from}");
        }
    }

    #[test]
    fn proc_paths_of_open_files_refer_to_the_caller() {
        let caller = caller(STATUS).unwrap();
        for (path, expected) in [
            (c"/proc/self/fd/5", Some((41, 5))),
            (c"/proc/thread-self/fd/5", Some((42, 5))),
            (c"/proc/41/fd/0", Some((41, 0))),
            (c"/proc/1/fd/5", None),
            (c"/proc/self/fd/-1", None),
            (c"/proc/self/fd/5/x", None),
            (c"/proc/self/exe", None),
        ] {
            assert_eq!(caller.open_file_number(path), expected, "{path:?}");
        }
    }

    fn parse(number: i64, arguments: [u64; 6]) -> Option<RawCall> {
        RawCall::from_notification(&PendingCall { id: 1, thread: 1, number: number as i32, arguments })
    }

    #[test]
    fn arguments_are_read_like_the_kernel_reads_them() {
        let high = 7 << 32;
        let at = PathArgument { from: -100, address: 1 };
        let here = u64::from((-100i32).cast_unsigned());
        let named = RawCall::Named { path: at, mode: 0o4755 };
        assert_eq!(parse(libc::SYS_fchmodat, [here | high, 1, 0o104755, 0, 0, 0]), Some(named));
        assert_eq!(
            parse(libc::SYS_fchmod, [high | 3, 0o2755, 0, 0, 0, 0]),
            Some(RawCall::Open { number: 3, mode: 0o2755 })
        );
        let flags = libc::O_CREAT as u64;
        let created = RawCall::Create { path: at, flags: libc::O_CREAT, mode: 0o6755 };
        assert_eq!(parse(libc::SYS_openat, [here, 1, flags, 0o6755, 0, 0]), Some(created));
        assert_eq!(parse(libc::SYS_unlinkat, [here, 1, 0, 0, 0, 0]), None);
        #[cfg(target_arch = "x86_64")]
        {
            assert_eq!(parse(libc::SYS_chmod, [1, 0o4755, 0, 0, 0, 0]), Some(named));
            assert_eq!(parse(libc::SYS_open, [1, flags, 0o6755, 0, 0, 0]), Some(created));
        }
    }
}

//! Who made a call, and what of theirs it is about.
//!
//! Everything of the caller's is opened before the kernel says that the caller still waits, and used after.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::abort;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::REFUSED;
use super::listener::{RawCall, is_valid};
use crate::os::as_user::as_user;
use crate::os::machine::Ids;
use crate::os::start::may_share;

/// Bytes of a path, with its NUL, that the kernel takes.
const LONGEST_PATH: usize = 4096;

/// A thread's identity, as the kernel tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Caller {
    thread: u32,
    process: u32,
    ids: Ids,
    effective: CapabilitySet,
    /// Bits that files it makes are without.
    umask: u32,
}

/// A call, of numbers as they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Change the mode of what is open under that number.
    Open { number: i32, mode: u32 },
    /// Change the mode of what is at a path.
    Named { path: At, mode: u32 },
    /// Make a file.
    Made { path: At, flags: i32, mode: u32 },
}

/// A path in the caller's memory; if it is relative, from that number on, or from where the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    from: i32,
    address: u64,
}

/// What a caller wants, with all that is theirs opened.
#[derive(Debug)]
pub(super) enum Wanted {
    /// Change what is open.
    Open { file: OwnedFd, mode: u32 },
    /// Change what is at a path.
    Named { path: Path, mode: u32 },
    /// Make a file that is not there, with that mode but for what the caller always leaves out.
    Made { path: Path, flags: i32, mode: u32 },
}

/// A path, from a directory on if it is relative, and what is `/` for the caller.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) path: CString,
    pub(super) from: Option<OwnedFd>,
    pub(super) root: OwnedFd,
}

/// Runs `act` with what a caller may do, no more and no less.
///
/// # Errors
/// Those of `act`; else why the call cannot be made for that caller.
pub(super) fn with<T>(call: &RawCall, listener: &OwnedFd, act: impl FnOnce(Wanted) -> Result<T>) -> Result<T> {
    let asked = Asked::of(call).ok_or(REFUSED)?;
    let caller = Caller::of(call.thread)?;
    // Root is what this thread is. For anybody else it changes, and the kernel decides anew who may read its memory.
    if (caller.ids.uid, caller.ids.gid) != (0, 0) && !may_share() {
        return Err(REFUSED);
    }
    let looked = || {
        let _back = Back::now()?;
        raise()?;
        let wanted = caller.open(asked)?;
        is_valid(listener, call.id)?;
        lower(caller.effective)?;
        act(wanted)
    };
    as_user(&caller.ids, looked)?
}

impl Asked {
    /// The filter asks about these calls only.
    fn of(call: &RawCall) -> Option<Self> {
        let [one, two, three, four, ..] = call.arguments;
        let mode = |it: u64| it as u32 & 0o7777;
        let here = |address| At { from: libc::AT_FDCWD, address };
        let from = |number, address| At { from: lower_half(number), address };
        Some(match i64::from(call.number) {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => Self::Named { path: here(one), mode: mode(two) },
            libc::SYS_fchmod => Self::Open { number: lower_half(one), mode: mode(two) },
            libc::SYS_fchmodat => Self::Named { path: from(one, two), mode: mode(three) },
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => Self::Made { path: here(one), flags: lower_half(two), mode: mode(three) },
            libc::SYS_openat => Self::Made { path: from(one, two), flags: lower_half(three), mode: mode(four) },
            _ => return None,
        })
    }
}

fn lower_half(argument: u64) -> i32 {
    argument as u32 as i32
}

impl Caller {
    fn of(thread: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{thread}/status")).map_err(|_| REFUSED)?;
        Self::read(thread, &status).ok_or(REFUSED)
    }

    /// One that is several users at once cannot be acted for.
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

    fn open(&self, asked: Asked) -> Result<Wanted> {
        match asked {
            Asked::Open { number, mode } => Ok(Wanted::Open { file: self.number(self.thread, number)?, mode }),
            Asked::Named { path, mode } => {
                let text = self.text(path.address)?;
                match self.by_number(&text) {
                    Some((process, number)) => Ok(Wanted::Open { file: self.number(process, number)?, mode }),
                    None => Ok(Wanted::Named { path: self.path(path.from, text)?, mode }),
                }
            }
            Asked::Made { path, flags, mode } => {
                let path = self.path(path.from, self.text(path.address)?)?;
                Ok(Wanted::Made { path, flags, mode: mode & !self.umask })
            }
        }
    }

    fn path(&self, from: i32, path: CString) -> Result<Path> {
        let from = match from {
            _ if path.as_bytes().first() == Some(&b'/') => None,
            libc::AT_FDCWD => Some(self.look("cwd")?),
            number => Some(self.number(self.thread, number)?),
        };
        Ok(Path { path, from, root: self.look("root")? })
    }

    /// What C libraries say for a file that they have open: here that would be a file of the guest's.
    fn by_number(&self, path: &CStr) -> Option<(u32, i32)> {
        let (process, number) = path.to_str().ok()?.strip_prefix("/proc/")?.split_once("/fd/")?;
        let process = match process {
            "thread-self" => self.thread,
            "self" => self.process,
            _ if process.parse() == Ok(self.process) => self.process,
            _ => return None,
        };
        Some((process, number.parse().ok().filter(|it| *it >= 0)?))
    }

    fn number(&self, process: u32, number: i32) -> Result<OwnedFd> {
        let opened = look(&format!("/proc/{process}/fd/{number}"));
        opened.map_err(|errno| if errno == Errno::NOENT { Errno::BADF } else { errno })
    }

    fn look(&self, what: &str) -> Result<OwnedFd> {
        look(&format!("/proc/{}/{what}", self.thread))
    }

    fn text(&self, address: u64) -> Result<CString> {
        let mut bytes = vec![0; LONGEST_PATH];
        let memory = File::open(format!("/proc/{}/mem", self.thread)).map_err(|_| REFUSED)?;
        // It ends where the caller's memory does.
        let count = memory.read_at(&mut bytes, address).map_err(|_| Errno::FAULT)?;
        let whole = if count == LONGEST_PATH { Errno::NAMETOOLONG } else { Errno::FAULT };
        CStr::from_bytes_until_nul(&bytes[..count]).map(CStr::to_owned).map_err(|_| whole)
    }
}

/// Whatever it is, without opening it for anything.
fn look(path: &str) -> Result<OwnedFd> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| match errno {
        Errno::ACCESS => REFUSED,
        other => other,
    })
}

/// All that the guest may have: for looking at a caller it takes what that one has, and more does no harm.
fn raise() -> Result<()> {
    let now = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: now.permitted, ..now })
}

fn lower(effective: CapabilitySet) -> Result<()> {
    let now = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: effective & now.permitted, ..now })
}

/// Gives a thread its capabilities back.
struct Back(CapabilitySets);

impl Back {
    fn now() -> Result<Self> {
        capabilities(None).map(Self)
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        if set_capabilities(None, self.0).is_err() {
            abort(); // As in `as_user`: the next that this thread is for would have another's.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tUid: 0\nUmask:\t0027\nTgid:\t41\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t8 9 \n\
                          CapPrm:\t00000000000000cb\nCapEff:\t0000000000000009\n";

    fn caller(status: &str) -> Option<Caller> {
        Caller::read(42, status)
    }

    #[test]
    fn a_caller_is_read_whole_or_not_at_all() {
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
    fn the_word_for_an_open_file_means_the_callers() {
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
            assert_eq!(caller.by_number(path), expected, "{path:?}");
        }
    }

    fn asked(number: i64, arguments: [u64; 6]) -> Option<Asked> {
        Asked::of(&RawCall { id: 1, thread: 1, number: number as i32, arguments })
    }

    #[test]
    fn a_call_means_what_the_kernel_takes_it_for() {
        let high = 7 << 32;
        let at = At { from: -100, address: 1 };
        let here = u64::from((-100i32).cast_unsigned());
        let named = Asked::Named { path: at, mode: 0o4755 };
        assert_eq!(asked(libc::SYS_fchmodat, [here | high, 1, 0o104755, 0, 0, 0]), Some(named));
        assert_eq!(
            asked(libc::SYS_fchmod, [high | 3, 0o2755, 0, 0, 0, 0]),
            Some(Asked::Open { number: 3, mode: 0o2755 })
        );
        let flags = libc::O_CREAT as u64;
        let made = Asked::Made { path: at, flags: libc::O_CREAT, mode: 0o6755 };
        assert_eq!(asked(libc::SYS_openat, [here, 1, flags, 0o6755, 0, 0]), Some(made));
        assert_eq!(asked(libc::SYS_unlinkat, [here, 1, 0, 0, 0, 0]), None);
        #[cfg(target_arch = "x86_64")]
        {
            assert_eq!(asked(libc::SYS_chmod, [1, 0o4755, 0, 0, 0, 0]), Some(named));
            assert_eq!(asked(libc::SYS_open, [1, flags, 0o6755, 0, 0, 0]), Some(made));
        }
    }
}

//! Attributes of files: sets those that clients send, and renders those of existing files.

use std::fs::OpenOptions;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, chmodat, chownat, fchmod, fchown,
    ftruncate, futimens, statat, utimensat,
};
use rustix::io::Errno;

use super::packet::{Fields, SftpError, SftpReply};
use crate::os::user::tables::Tables;

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 1 << 31;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Attributes that a client sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    pub(super) size: Option<u64>,
    pub(super) owner: Option<(Uid, Gid)>,
    pub(super) mode: Option<Mode>,
    pub(super) times: Option<Timestamps>,
}

/// The file whose attributes are set.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    Path(&'a Path),
    /// The path itself, even if it is a link.
    Link(&'a Path),
    File(BorrowedFd<'a>),
}

impl Attributes {
    pub(super) fn parse(fields: &mut Fields<'_>) -> Result<Self, SftpError> {
        let flags = fields.u32()?;
        let mut attributes = Self::default();
        if flags & SIZE != 0 {
            attributes.size = Some(fields.u64()?);
        }
        if flags & OWNER != 0 {
            attributes.owner = Some((Uid::from_raw_unchecked(fields.u32()?), Gid::from_raw_unchecked(fields.u32()?)));
        }
        if flags & PERMISSIONS != 0 {
            attributes.mode = Some(Mode::from_raw_mode(fields.u32()? & 0o7777));
        }
        if flags & TIMES != 0 {
            let mut time = || fields.u32().map(|seconds| Timespec { tv_sec: seconds.into(), tv_nsec: 0 });
            attributes.times = Some(Timestamps { last_access: time()?, last_modification: time()? });
        }
        if flags & EXTENDED != 0 {
            for _ in 0..fields.u32()? {
                fields.bytes()?;
                fields.bytes()?;
            }
        }
        Ok(attributes)
    }

    /// Sets each attribute, even after an error, and returns the last error.
    pub(super) fn set(&self, target: Target<'_>) -> Result<(), SftpError> {
        let size = self.size.map(|size| set_size(target, size));
        let mode = self.mode.map(|mode| Ok(set_mode(target, mode)?));
        let times = self.times.as_ref().map(|times| Ok(set_times(target, times)?));
        // Last: the attributes of a file of another owner cannot be changed any more.
        let owner = self.owner.map(|(uid, gid)| Ok(set_owner(target, uid, gid)?));
        [owner, times, mode, size].into_iter().flatten().find(Result::is_err).unwrap_or(Ok(()))
    }
}

fn set_size(target: Target<'_>, size: u64) -> Result<(), SftpError> {
    match target {
        // Without the flag, opening a pipe that has no reader would block the server.
        Target::Path(path) => {
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            Ok(OpenOptions::new().write(true).custom_flags(nonblocking).open(path)?.set_len(size)?)
        }
        Target::Link(_) => Err(Errno::INVAL.into()),
        Target::File(file) => Ok(ftruncate(file, size)?),
    }
}

fn set_mode(target: Target<'_>, mode: Mode) -> Result<(), Errno> {
    match target {
        Target::Path(path) => chmodat(CWD, path, mode, AtFlags::empty()),
        Target::Link(path) => {
            let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => Err(Errno::OPNOTSUPP),
                _ => chmodat(CWD, path, mode, AtFlags::empty()),
            }
        }
        Target::File(file) => fchmod(file, mode),
    }
}

fn set_times(target: Target<'_>, times: &Timestamps) -> Result<(), Errno> {
    match target {
        Target::Path(path) => utimensat(CWD, path, times, AtFlags::empty()),
        Target::Link(path) => utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW),
        Target::File(file) => futimens(file, times),
    }
}

fn set_owner(target: Target<'_>, uid: Uid, gid: Gid) -> Result<(), Errno> {
    match target {
        Target::Path(path) => chownat(CWD, path, Some(uid), Some(gid), AtFlags::empty()),
        Target::Link(path) => chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW),
        Target::File(file) => fchown(file, Some(uid), Some(gid)),
    }
}

/// Appends the attributes of a file.
pub(super) fn put(reply: SftpReply, stat: &Stat) -> SftpReply {
    // The protocol cannot represent a time before 1970 or after 2106.
    let seconds = |time: i64| u32::try_from(time.max(0)).unwrap_or(u32::MAX);
    reply
        .u32(SIZE | OWNER | PERMISSIONS | TIMES)
        .u64(stat.st_size.cast_unsigned())
        .u32(stat.st_uid)
        .u32(stat.st_gid)
        .u32(stat.st_mode)
        .u32(seconds(stat.st_atime))
        .u32(seconds(stat.st_mtime))
}

/// The line of a file in a listing, in the format of `ls -l`, with the time in UTC.
pub(super) fn line(name: &[u8], stat: &Stat, tables: &Tables) -> Vec<u8> {
    let user = tables.user(stat.st_uid).map_or_else(|| stat.st_uid.to_string(), |it| it.name);
    let group = tables.group_name(stat.st_gid).unwrap_or_else(|| stat.st_gid.to_string());
    let (mode, date) = (shown_mode(stat.st_mode), shown_date(stat.st_mtime));
    let mut line = format!("{mode} {:>3} {user:<8} {group:<8} {:>8} {date} ", stat.st_nlink, stat.st_size).into_bytes();
    line.extend(name);
    line
}

fn shown_mode(mode: u32) -> String {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        _ => '-',
    };
    let special = [(0o4000, 0o100, 's', 'S'), (0o2000, 0o010, 's', 'S'), (0o1000, 0o001, 't', 'T')];
    let mut shown = String::from(kind);
    for ((bit, execute, both, alone), shift) in special.into_iter().zip([6, 3, 0]) {
        shown.push(if mode >> shift & 4 != 0 { 'r' } else { '-' });
        shown.push(if mode >> shift & 2 != 0 { 'w' } else { '-' });
        shown.push(match (mode & bit != 0, mode & execute != 0) {
            (true, true) => both,
            (true, false) => alone,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    shown
}

/// The date of a time, computed in cycles of 400 years that begin in March.
fn shown_date(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (january, name) = (i64::from(month >= 10), usize::try_from((month + 2) % 12).unwrap_or_default());
    format!("{} {day_of_month:>2}  {}", MONTHS[name], era * 400 + year + january)
}

#[cfg(test)]
mod tests {
    use super::{shown_date, shown_mode};

    #[test]
    fn dates_are_those_of_the_calendar() {
        let shown = [0, 951_782_400, 951_868_800, 1_798_675_199, -1].map(shown_date);
        assert_eq!(shown, ["Jan  1  1970", "Feb 29  2000", "Mar  1  2000", "Dec 30  2026", "Dec 31  1969"]);
    }

    #[test]
    fn modes_are_rendered_like_ls() {
        let shown = [0o100_644, 0o104_755, 0o41_777, 0o120_777, 0o102_640].map(shown_mode);
        assert_eq!(shown, ["-rw-r--r--", "-rwsr-xr-x", "drwxrwxrwt", "lrwxrwxrwx", "-rw-r-S---"]);
    }
}

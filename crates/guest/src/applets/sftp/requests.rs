//! Handles the requests of a client.

use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::{fs, io};

use rustix::fd::AsFd as _;
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, StatVfs, StatVfsMountFlags, fstat, fstatvfs, fsync, mkdirat, openat,
    renameat_with, statat, statvfs, unlink,
};
use rustix::io::Errno;

use super::attributes::{self, Attributes, Target};
use super::handles::{Handles, OpenHandle};
use super::packet::{Fields, SftpError, SftpReply, reply, status};
use super::{MAX_PACKET, paths};
use crate::os::user::tables::Tables;

const VERSION: u32 = 3;

/// Longest read or write in bytes: leaves 1 KiB of its packet for the other fields.
const MAX_DATA: usize = MAX_PACKET - 1024;

/// Entries of a directory in one reply.
const ENTRIES: usize = 100;

const READ: u32 = 1;
const WRITE: u32 = 2;
const APPEND: u32 = 4;
const CREATE: u32 = 8;
const TRUNCATE: u32 = 16;
const EXCLUSIVE: u32 = 32;

/// Extensions, and their versions.
const EXTENSIONS: [(&str, &str); 11] = [
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("expand-path@openssh.com", "1"),
    ("copy-data", "1"),
    ("home-directory", "1"),
    ("users-groups-by-id@openssh.com", "1"),
];

/// The state of one client.
#[derive(Debug, Default)]
pub(super) struct SftpServer {
    has_greeted: bool,
    handles: Handles,
}

impl SftpServer {
    /// Handles a request and returns the reply.
    ///
    /// # Errors
    /// Fails for a packet without an id, and for a first packet that is not a greeting.
    pub(super) fn handle(&mut self, packet: &[u8]) -> io::Result<SftpReply> {
        let cut = || io::Error::other("the packet is too short");
        let (kind, rest) = packet.split_first().ok_or_else(cut)?;
        let mut fields = Fields(rest);
        let id = fields.u32().map_err(|_| cut())?;
        // The greeting has a version in place of an id.
        if !std::mem::replace(&mut self.has_greeted, true) {
            return if *kind == 1 {
                Ok(greeting())
            } else {
                Err(io::Error::other("the first packet is not an SFTP greeting"))
            };
        }
        let result = self.execute(*kind, id, &mut fields);
        Ok(result.unwrap_or_else(|error| SftpReply::status(id, error.status, &error.message)))
    }

    fn execute(&mut self, kind: u8, id: u32, fields: &mut Fields<'_>) -> Result<SftpReply, SftpError> {
        match kind {
            3 => {
                let handle = open(fields)?;
                return Ok(SftpReply::new(reply::HANDLE, id).bytes(&self.handles.add(handle)));
            }
            4 => self.handles.close(fields)?,
            5 => return self.read(id, fields),
            6 => self.write(fields)?,
            7 => return stat(id, fields.path()?, AtFlags::SYMLINK_NOFOLLOW),
            8 => return Ok(attributes::put(SftpReply::new(reply::ATTRS, id), &fstat(self.handles.file(fields)?)?)),
            9 => {
                let path = fields.path()?;
                Attributes::parse(fields)?.set(Target::Path(path))?;
            }
            10 => {
                let file = self.handles.file(fields)?;
                Attributes::parse(fields)?.set(Target::File(file.as_fd()))?;
            }
            11 => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let dir = Dir::new(openat(CWD, fields.path()?, flags, Mode::empty())?)?;
                return Ok(SftpReply::new(reply::HANDLE, id).bytes(&self.handles.add(OpenHandle::Dir(dir))));
            }
            12 => return read_dir(id, self.handles.dir(fields)?),
            13 => unlink(fields.path()?)?,
            14 => {
                let path = fields.path()?;
                let mode = Attributes::parse(fields)?.mode.unwrap_or(Mode::from_raw_mode(0o777));
                mkdirat(CWD, path, mode)?;
            }
            15 => fs::remove_dir(fields.path()?)?,
            16 => return Ok(SftpReply::path(id, &paths::resolve(fields.path()?)?)),
            17 => return stat(id, fields.path()?, AtFlags::empty()),
            18 => rename_if_free(fields.path()?, fields.path()?)?,
            19 => return Ok(SftpReply::path(id, &fs::read_link(fields.path()?)?)),
            // The target is first, unlike in the draft: OpenSSH and other clients send it so.
            20 => symlink(fields.path()?, fields.path()?)?,
            200 => return self.extended(id, fields),
            _ => return Err(unsupported()),
        }
        Ok(SftpReply::ok(id))
    }

    fn read(&self, id: u32, fields: &mut Fields<'_>) -> Result<SftpReply, SftpError> {
        let file = self.handles.file(fields)?;
        let (offset, length) = (fields.u64()?, fields.u32()?);
        let length = usize::try_from(length).unwrap_or(MAX_DATA).min(MAX_DATA);
        let mut bytes = vec![0; length];
        let count = file.read_at(&mut bytes, offset)?;
        if count == 0 && length > 0 {
            return Err(SftpError::new(status::EOF, "End of file"));
        }
        Ok(SftpReply::new(reply::DATA, id).bytes(&bytes[..count]))
    }

    /// If a file is open for appending, Linux ignores the offset and appends the bytes.
    fn write(&self, fields: &mut Fields<'_>) -> Result<(), SftpError> {
        let file = self.handles.file(fields)?;
        let (offset, bytes) = (fields.u64()?, fields.bytes()?);
        Ok(file.write_all_at(bytes, offset)?)
    }

    fn extended(&self, id: u32, fields: &mut Fields<'_>) -> Result<SftpReply, SftpError> {
        match fields.bytes()? {
            b"posix-rename@openssh.com" => fs::rename(fields.path()?, fields.path()?)?,
            b"statvfs@openssh.com" => return Ok(put_statvfs(id, &statvfs(fields.path()?)?)),
            b"fstatvfs@openssh.com" => return Ok(put_statvfs(id, &fstatvfs(self.handles.file(fields)?)?)),
            b"hardlink@openssh.com" => fs::hard_link(fields.path()?, fields.path()?)?,
            b"fsync@openssh.com" => fsync(self.handles.file(fields)?)?,
            b"lsetstat@openssh.com" => {
                let path = fields.path()?;
                Attributes::parse(fields)?.set(Target::Link(path))?;
            }
            b"limits@openssh.com" => {
                let (packet, data) = (MAX_PACKET as u64, MAX_DATA as u64);
                // 0 means no limit of handles: the kernel limits open files.
                return Ok(SftpReply::new(reply::EXTENDED, id).u64(packet).u64(data).u64(data).u64(0));
            }
            b"expand-path@openssh.com" => {
                let path = paths::expand(&tables(), fields.path()?)?;
                return Ok(SftpReply::path(id, &paths::resolve(&path)?));
            }
            b"copy-data" => self.handles.copy_data(fields)?,
            b"home-directory" => return Ok(SftpReply::path(id, &paths::home(&tables(), fields.bytes()?)?)),
            b"users-groups-by-id@openssh.com" => {
                let (users, groups) = (ids(fields.bytes()?), ids(fields.bytes()?));
                let tables = tables();
                let users = names(users.map(|uid| tables.user(uid).map(|user| user.name)));
                let groups = names(groups.map(|gid| tables.group_name(gid)));
                return Ok(SftpReply::new(reply::EXTENDED, id).bytes(&users).bytes(&groups));
            }
            _ => return Err(unsupported()),
        }
        Ok(SftpReply::ok(id))
    }
}

fn greeting() -> SftpReply {
    let version = SftpReply::new(reply::VERSION, VERSION);
    EXTENSIONS.iter().fold(version, |reply, (name, version)| reply.bytes(name.as_bytes()).bytes(version.as_bytes()))
}

fn unsupported() -> SftpError {
    SftpError::new(status::UNSUPPORTED, "unsupported request")
}

/// The current users and groups of the container.
fn tables() -> Tables {
    let read = |path| fs::read(path).unwrap_or_default();
    Tables { passwd: read("/etc/passwd"), group: read("/etc/group") }
}

fn ids(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|id| u32::from_be_bytes(*id))
}

/// Encodes names one after the other, a missing one as an empty name.
fn names(names: impl Iterator<Item = Option<String>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in names {
        let name = name.unwrap_or_default();
        bytes.extend(u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(name.as_bytes());
    }
    bytes
}

fn open(fields: &mut Fields<'_>) -> Result<OpenHandle, SftpError> {
    let (path, flags) = (fields.path()?, fields.u32()?);
    let mode = Attributes::parse(fields)?.mode.unwrap_or(Mode::from_raw_mode(0o666));
    let has = |flag| flags & flag != 0;
    // Appending implies writing, also if a client sets only that flag.
    let access = match (has(READ), has(WRITE | APPEND)) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    let others =
        [(APPEND, OFlags::APPEND), (CREATE, OFlags::CREATE), (TRUNCATE, OFlags::TRUNC), (EXCLUSIVE, OFlags::EXCL)];
    let others: OFlags = others.into_iter().filter(|(flag, _)| has(*flag)).map(|(_, set)| set).collect();
    let file = openat(CWD, path, access | others | OFlags::CLOEXEC | OFlags::NOCTTY, mode)?;
    Ok(OpenHandle::File(file.into()))
}

fn stat(id: u32, path: &Path, flags: AtFlags) -> Result<SftpReply, SftpError> {
    Ok(attributes::put(SftpReply::new(reply::ATTRS, id), &statat(CWD, path, flags)?))
}

fn read_dir(id: u32, dir: &mut Dir) -> Result<SftpReply, SftpError> {
    let tables = tables();
    let (mut count, mut entries) = (0, Vec::new());
    while entries.len() < ENTRIES {
        let Some(entry) = dir.read() else { break };
        let name = entry?.file_name().to_owned();
        // Skips an entry that was removed in the meantime.
        if let Ok(stat) = statat(dir.fd()?, &name, AtFlags::SYMLINK_NOFOLLOW) {
            count += 1;
            entries.push((name, stat));
        }
    }
    if entries.is_empty() {
        return Err(SftpError::new(status::EOF, "End of file"));
    }
    let reply = SftpReply::new(reply::NAME, id).u32(count);
    Ok(entries.iter().fold(reply, |reply, (name, stat)| {
        let name = name.as_bytes();
        attributes::put(reply.bytes(name).bytes(&attributes::line(name, stat, &tables)), stat)
    }))
}

/// Renames a file if the new name is free.
fn rename_if_free(from: &Path, to: &Path) -> Result<(), SftpError> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support the flag.
        Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(to).is_err() => Ok(fs::rename(from, to)?),
        renamed => Ok(renamed?),
    }
}

fn put_statvfs(id: u32, stat: &StatVfs) -> SftpReply {
    let blocks = [
        stat.f_bsize,
        stat.f_frsize,
        stat.f_blocks,
        stat.f_bfree,
        stat.f_bavail,
        stat.f_files,
        stat.f_ffree,
        stat.f_favail,
    ];
    // The protocol's bits are those of the kernel.
    let flags = (stat.f_flag & (StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOSUID)).bits();
    let rest = [stat.f_fsid, flags, stat.f_namemax];
    blocks.into_iter().chain(rest).fold(SftpReply::new(reply::EXTENDED, id), SftpReply::u64)
}

//! Users, groups and their homes, in the files of the image.

mod home;
pub(crate) mod tables;

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, StatVfsMountFlags, Uid, fchmod, fchown, fstat, fstatvfs, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use self::home::create;
use self::tables::{PasswdEntry, Tables};
use crate::atomic::{AtomicFile, Durability, Leftovers};
use crate::os::machine::{Ids, NewUser};
use crate::os::openat2::open;
use crate::protocol::{EnsureUser, ErrorCode, RpcError, UserSpec};

/// Login shells in order of preference.
const SHELLS: [&str; 3] = ["/bin/bash", "/bin/zsh", "/bin/sh"];

/// Largest table in bytes: it is read for every command.
const MAX_TABLE: u64 = 1 << 20;

/// The account data in the environment of a user's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) home: String,
    pub(crate) shell: String,
}

/// The users of a container, from the files beneath its root.
#[derive(Debug)]
pub(crate) struct Users {
    root: OwnedFd,
    writing: Mutex<()>,
    leftovers: Leftovers,
}

impl Users {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root, writing: Mutex::default(), leftovers: Leftovers::of_earlier_guests() }
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// See [`ProcessBackend::ids`](crate::os::machine::ProcessBackend::ids). An unreadable table counts as empty.
    ///
    /// # Errors
    /// [`ErrorCode::NoUser`]
    pub(crate) fn ids(&self, who: &UserSpec) -> Result<Ids, RpcError> {
        ids(&self.load().unwrap_or_default(), who)
    }

    /// The ids and the account of a user, with safe defaults if the uid has no entry.
    ///
    /// # Errors
    /// As for [`ids`](Self::ids).
    pub(crate) fn find(&self, who: &UserSpec) -> Result<(Ids, Account), RpcError> {
        let tables = self.load().unwrap_or_default();
        let ids = ids(&tables, who)?;
        let uid = ids.uid;
        let account = self.account_of(tables.user(uid).unwrap_or_else(|| PasswdEntry {
            name: if uid == 0 { "root".into() } else { uid.to_string() },
            uid,
            gid: uid,
            home: if uid == 0 { "/root".into() } else { String::new() },
            shell: String::new(),
        }));
        Ok((ids, account))
    }

    /// Creates an entry for the uid and one for the gid, a home, and the working directory, if they are missing.
    /// Existing files retain their owner, except a work directory or a volume at the home that belongs to root: the user
    /// could not write there. Bind mounts always retain it. On a read-only root only the working directory is created.
    ///
    /// # Errors
    /// Fails if a file cannot be written or created.
    pub(crate) fn ensure_user(&self, request: &EnsureUser) -> Result<Account, RpcError> {
        let _guard = self.writing.lock().expect("no code panics while holding the lock");
        let mut tables = self.load().map_err(|error| fault("/etc/passwd cannot be read", &error))?;
        let (users, groups) = (tables.passwd.len(), tables.group.len());
        let entry =
            tables.user(request.uid).unwrap_or_else(|| tables.add_user(request.uid, request.gid, self.shell("")));
        let read_only = self.is_read_only();
        if tables.passwd.len() > users && !read_only {
            self.write("passwd", &tables.passwd, users)?;
        }
        if tables.add_group(request.gid) && !read_only {
            self.write("group", &tables.group, groups)?;
        }
        let account = self.account_of(entry);
        let owner = (Uid::from_raw(request.uid), Gid::from_raw(request.gid));
        let home_dir = (!read_only).then_some((&account.home, 0o700, true));
        let directories = || home_dir.into_iter().chain([(&request.workdir, 0o755, false)]);
        for (path, mode, _) in directories() {
            let created = create(self.root(), path, Mode::from_raw_mode(mode), Some(owner));
            created.map_err(|errno| no_directory(path, errno))?;
        }
        let is_bound = |path: &str| request.bound.iter().any(|it| is_beneath(path, it));
        for (path, _, only_a_volume) in directories() {
            if !owner.0.is_root() && !is_bound(path) {
                home::take_over(self.root(), path, owner, only_a_volume).map_err(|errno| no_directory(path, errno))?;
            }
        }
        Ok(account)
    }

    /// Adds a user and its group, if they are missing and the image's files can be written.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written.
    pub(crate) fn add(&self, user: &NewUser<'_>) -> Result<(), RpcError> {
        let _guard = self.writing.lock().expect("no code panics while holding the lock");
        // A guest without privileges cannot write root's files.
        if self.is_read_only() || !geteuid().is_root() {
            return Ok(());
        }
        let mut tables = self.load().map_err(|error| fault("/etc/passwd cannot be read", &error))?;
        let (users, groups) = (tables.passwd.len(), tables.group.len());
        if tables.user(user.uid).is_none() {
            tables.add_named(user, if user.login { self.shell("") } else { "/usr/sbin/nologin" });
            self.write("passwd", &tables.passwd, users)?;
        }
        if tables.add_group_named(user.gid, user.name) {
            self.write("group", &tables.group, groups)?;
        }
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        fstatvfs(self.root()).is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    fn account_of(&self, entry: PasswdEntry) -> Account {
        let home = if entry.home.starts_with('/') { entry.home } else { "/".into() };
        Account { name: entry.name, home, shell: self.shell(&entry.shell).to_owned() }
    }

    /// The shell of the entry if it exists, else the best available one; `/bin/sh` if there is none.
    fn shell<'a>(&self, entry: &'a str) -> &'a str {
        let is_usable = !entry.ends_with("/nologin") && !entry.ends_with("/false") && self.is_executable(entry);
        if is_usable { entry } else { SHELLS.into_iter().find(|it| self.is_executable(it)).unwrap_or(SHELLS[2]) }
    }

    fn is_executable(&self, path: &str) -> bool {
        let opened = || open(self.root(), &CString::new(path).ok()?, OFlags::PATH, Mode::empty()).ok();
        let stat = opened().and_then(|it| fstat(it).ok());
        stat.is_some_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o111 != 0
        })
    }

    fn load(&self) -> io::Result<Tables> {
        Ok(Tables { passwd: self.read("/etc/passwd")?, group: self.read("/etc/group")? })
    }

    /// The content of a regular file; empty if it is missing. Root inside can put any kind of file there, and a pipe must not
    /// block the guest.
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let name = CString::new(path)?;
        let opened = match open(self.root(), &name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened?,
        };
        let stat = fstat(&opened)?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !regular || stat.st_size.cast_unsigned() > MAX_TABLE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file of at most 1 MiB"));
        }
        // One spare byte lets a single read detect the end of the file.
        let mut bytes = Vec::with_capacity(usize::try_from(stat.st_size).unwrap_or_default() + 1);
        std::fs::File::from(opened).take(MAX_TABLE).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes a table that was `before` bytes long and to which lines were only appended.
    fn write(&self, name: &str, table: &[u8], before: usize) -> Result<(), RpcError> {
        let written = create(self.root(), "/etc", Mode::from_raw_mode(0o755), None)
            .and_then(|()| open(self.root(), c"/etc", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()))
            .map_err(io::Error::from)
            .and_then(|etc| match self.replace(&etc, name, table) {
                // Engines bind a file over the table, and in some images it is a link.
                Err(Errno::BUSY | Errno::LOOP) => self.append(name, &table[before..]),
                replaced => Ok(replaced?),
            });
        written.map_err(|error| fault(&format!("/etc/{name} cannot be written"), &error))
    }

    /// Returns `LOOP` for a link to a file, which is not replaced.
    fn replace(&self, etc: &OwnedFd, name: &str, table: &[u8]) -> Result<(), Errno> {
        let old = match statat(etc, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            old => Some(old?).filter(|it| FileType::from_raw_mode(it.st_mode) != FileType::Symlink),
        };
        let path = CString::new(format!("/etc/{name}")).map_err(|_| Errno::INVAL)?;
        if old.is_none() && open(self.root(), &path, OFlags::PATH, Mode::empty()).is_ok() {
            return Err(Errno::LOOP);
        }
        self.leftovers.clear(etc);
        let mut new = AtomicFile::create(etc, Mode::RUSR | Mode::WUSR)?;
        new.file().write_all(table).map_err(|it| Errno::from_io_error(&it).unwrap_or(Errno::IO))?;
        if let Some(old) = old {
            // Without the right to change the owner, the owner is already correct.
            let _ = fchown(new.file(), Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)));
        }
        fchmod(new.file(), Mode::from_raw_mode(old.map_or(0o644, |it| it.st_mode & 0o777)))?;
        new.commit(name.as_bytes(), true, Durability::All).map(drop)
    }

    fn append(&self, name: &str, lines: &[u8]) -> io::Result<()> {
        let path = CString::new(format!("/etc/{name}"))?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY;
        std::fs::File::from(open(self.root(), &path, flags, Mode::empty())?).write_all(lines)
    }
}

fn is_beneath(path: &str, above: &str) -> bool {
    path.strip_prefix(above.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn ids(tables: &Tables, who: &UserSpec) -> Result<Ids, RpcError> {
    match who {
        UserSpec::Ids { uid: u32::MAX, .. } | UserSpec::Ids { gid: Some(u32::MAX), .. } => {
            Err(RpcError::new(ErrorCode::NoUser, format!("{} is neither a user nor a group", u32::MAX)))
        }
        UserSpec::Ids { uid, gid } => Ok(tables.numbers(*uid, *gid)),
        UserSpec::Name(name) => tables.named(name).ok_or_else(|| {
            RpcError::new(ErrorCode::NoUser, format!("there is no user `{name}` in the container's /etc/passwd"))
        }),
    }
}

fn no_directory(path: &str, errno: Errno) -> RpcError {
    let code = match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::EXIST | Errno::INVAL => ErrorCode::NoDirectory,
        _ => return fault(&format!("the directory `{path}` cannot be created"), &errno.into()),
    };
    RpcError::new(code, format!("the directory `{path}` cannot be created: {}", io::Error::from(errno)))
}

fn fault(what: &str, error: &io::Error) -> RpcError {
    let code = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorCode::Denied,
        _ => ErrorCode::Io,
    };
    RpcError::new(code, format!("{what}: {error}"))
}

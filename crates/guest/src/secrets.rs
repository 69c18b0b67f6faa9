//! Files on the container's own tmpfs, where only the guest writes.
//!
//! **Invariant:** every directory on the way is opened in the one above it, and no link is followed: swapping names in
//! a user's own directory leads to that user's own files only.

pub(crate) mod session_env;

use std::collections::HashMap;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, fstat, fstatfs};
use rustix::fs::{CWD, mkdirat, openat, openat2, unlinkat};
use rustix::io::{Errno, Result as Done};
use rustix::process::{getegid, geteuid};

use crate::os::atomic::{AtomicFile, Durability};
use crate::protocol::body::Bytes;
use crate::protocol::{ErrorCode, PutSecret, RpcError};

/// Magic number of a tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// Names in `/.coracle/run` that are the guest's own, beside those that begin with a dot or end like a socket.
const OURS: [&str; 3] = ["sock", "shell", GIT_CONFIG];

/// Configuration for git inside, which is not secret.
const GIT_CONFIG: &str = "gitconfig";

/// Bytes of a name, at most.
const MAX_NAME: usize = 1000;

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The secret files of a container.
#[derive(Debug)]
pub(crate) struct Secrets {
    root: PathBuf,
    /// Held while one is written: a directory that is being made is not its user's yet.
    writing: Mutex<()>,
    /// Files for commands that did not begin yet, and a number that is another one for each time.
    waiting: Mutex<(HashMap<String, u64>, u64)>,
}

impl Secrets {
    /// The secrets of a container with that root.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), writing: Mutex::default(), waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, (HashMap<String, u64>, u64)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a file whole, and in place of one that is there. Blocks.
    ///
    /// # Errors
    /// [`ErrorCode::Invalid`] for a name or a mode that no such file has; [`ErrorCode::Denied`] where the directory for
    /// such files is missing, or one on the way is another user's; [`ErrorCode::WrongKind`] where one is none.
    pub(crate) fn put(&self, ask: &PutSecret) -> Result<(), RpcError> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        put(&self.root, ask, &ask.content)
    }

    /// Writes git's configuration, readable by all users and writable by none. Blocks.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) fn put_git_config(&self, content: &[u8]) -> Result<(), RpcError> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = base(&self.root)?;
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let ask = PutSecret { name: GIT_CONFIG.into(), uid, gid, mode: 0o444, content: Bytes::default(), lent: false };
        write(dir.as_fd(), GIT_CONFIG, &ask, content).map_err(|errno| explained(GIT_CONFIG, errno))
    }
}

/// Secret files that one command alone has: they are gone with this.
#[derive(Debug)]
pub(crate) struct CommandSecrets(Arc<Secrets>, Vec<String>);

impl CommandSecrets {
    /// Takes these files, existing or not, out of the pending ones.
    pub(crate) fn new(secrets: &Arc<Secrets>, names: &[String]) -> Self {
        let mut waiting = secrets.waiting();
        for name in names {
            waiting.0.remove(name);
        }
        drop(waiting);
        Self(secrets.clone(), names.to_vec())
    }

    /// Keeps the files: another command uses them.
    pub(crate) fn release(mut self) {
        self.1.clear();
    }
}

impl Drop for CommandSecrets {
    fn drop(&mut self) {
        for name in &self.1 {
            let _ = remove(&self.0.root, name);
        }
    }
}

/// A file for a future command: removed with this value, unless the command took it or the file was replaced.
#[derive(Debug)]
pub(crate) struct PendingSecret(Arc<Secrets>, String, u64);

impl PendingSecret {
    /// Registers a file that does not exist yet.
    pub(crate) fn new(secrets: &Arc<Secrets>, name: &str) -> Self {
        let mut waiting = secrets.waiting();
        waiting.1 += 1;
        let number = waiting.1;
        waiting.0.insert(name.to_owned(), number);
        Self(secrets.clone(), name.to_owned(), number)
    }

    /// Whether no command took it yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.waiting().0.get(&self.1) == Some(&self.2)
    }
}

impl Drop for PendingSecret {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        if waiting.0.get(&self.1) == Some(&self.2) {
            waiting.0.remove(&self.1);
            let _ = remove(&self.0.root, &self.1);
        }
    }
}

/// Takes a file away that lies in no directory of its own.
fn remove(root: &Path, name: &str) -> Result<(), RpcError> {
    let [name] = parts(name)?[..] else { return Err(explained(name, Errno::NOTDIR)) };
    unlinkat(base(root)?, name, AtFlags::empty()).map_err(|errno| explained(name, errno))
}

fn put(root: &Path, ask: &PutSecret, content: &[u8]) -> Result<(), RpcError> {
    let parts = parts(&ask.name)?;
    let (name, dirs) = parts.split_last().expect("a name has a part");
    if ![0o400, 0o600].contains(&ask.mode) {
        return Err(RpcError::new(ErrorCode::Invalid, format!("{:#o} is neither 0400 nor 0600", ask.mode)));
    }
    if ask.uid == u32::MAX || ask.gid == u32::MAX {
        return Err(RpcError::new(ErrorCode::NoUser, format!("{} means no user or group", u32::MAX)));
    }
    let fault = |errno| explained(&ask.name, errno);
    let mut dir = base(root)?;
    for part in dirs {
        dir = entered(dir.as_fd(), part, ask).map_err(fault)?;
    }
    write(dir.as_fd(), name, ask, content).map_err(fault)
}

/// The parts of a name that may be one.
fn parts(name: &str) -> Result<Vec<&str>, RpcError> {
    let parts: Vec<&str> = name.split('/').collect();
    let plain = |it: &&str| {
        let allowed = |it: u8| it.is_ascii_alphanumeric() || b"._-".contains(&it);
        !["", ".", ".."].contains(it) && it.bytes().all(allowed)
    };
    let ours = |it: &str| OURS.contains(&it) || it.starts_with('.') || it.ends_with(".sock");
    if name.len() > MAX_NAME || !parts.iter().all(plain) || parts.first().is_none_or(|it| ours(it)) {
        return Err(RpcError::new(ErrorCode::Invalid, format!("`{name:.100}` is no name for a secret file")));
    }
    Ok(parts)
}

/// The directory that they are in. PID 1 takes no other file system than the one that is gone with it.
fn base(root: &Path) -> Result<OwnedFd, RpcError> {
    let fault = |errno: Errno| explained("", errno);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags, Mode::empty()).map_err(fault)?;
    for dir in [".coracle", ".coracle/run"] {
        match mkdirat(&root, dir, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST | Errno::ROFS) => {}
            Err(errno) => return Err(fault(errno)),
        }
    }
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let base = openat2(&root, ".coracle/run", DIR, Mode::empty(), how).map_err(fault)?;
    let magic = u64::try_from(fstatfs(&base).map_err(fault)?.f_type).unwrap_or_default();
    if std::process::id() == 1 && magic != TMPFS {
        return Err(RpcError::new(ErrorCode::Denied, "`/.coracle/run` is no tmpfs, and secrets belong on no disk"));
    }
    Ok(base)
}

/// A directory of the user's alone, made when it is missing.
fn entered(above: BorrowedFd<'_>, name: &str, ask: &PutSecret) -> Done<OwnedFd> {
    let made = match mkdirat(above, name, Mode::RWXU) {
        Err(Errno::EXIST) => false,
        made => made.map(|()| true)?,
    };
    let dir = openat(above, name, DIR, Mode::empty())?;
    if made {
        set_owner(dir.as_fd(), ask)?;
    }
    if fstat(&dir)?.st_uid != ask.uid {
        return Err(Errno::ACCESS);
    }
    fchmod(&dir, Mode::RWXU)?;
    Ok(dir)
}

/// A file that a killed guest leaves is removed with the tmpfs.
fn write(dir: BorrowedFd<'_>, name: &str, ask: &PutSecret, content: &[u8]) -> Done<()> {
    let mut new = AtomicFile::create(dir, Mode::RUSR | Mode::WUSR)?;
    new.file().write_all(content).map_err(|it| Errno::from_io_error(&it).unwrap_or(Errno::IO))?;
    fchmod(new.file(), Mode::from_raw_mode(ask.mode))?;
    set_owner(new.file().as_fd(), ask)?;
    new.commit(name.as_bytes(), true, Durability::Nothing).map(drop)
}

fn set_owner(file: BorrowedFd<'_>, ask: &PutSecret) -> Done<()> {
    fchown(file, Some(Uid::from_raw(ask.uid)), Some(Gid::from_raw(ask.gid)))
}

fn explained(name: &str, errno: Errno) -> RpcError {
    let (code, why) = match errno {
        Errno::ACCESS | Errno::PERM => (ErrorCode::Denied, "belongs to somebody else".to_owned()),
        Errno::NOTDIR | Errno::LOOP | Errno::ISDIR => (ErrorCode::WrongKind, "is no place for a file".to_owned()),
        errno => (ErrorCode::Io, format!("cannot be written: {}", std::io::Error::from(errno))),
    };
    RpcError::new(code, format!("`/.coracle/run/{name}` {why}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn ask(name: &str, mode: u32) -> PutSecret {
        PutSecret {
            name: name.into(),
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            mode,
            content: Bytes::default(),
            lent: false,
        }
    }

    fn refusal(root: &Path, ask: &PutSecret) -> ErrorCode {
        put(root, ask, b"secret").unwrap_err().code
    }

    #[test]
    fn a_file_is_its_users_alone_and_so_are_the_directories_on_the_way() {
        let root = tempfile::tempdir().unwrap();
        let run = root.path().join(".coracle/run");
        for (mode, content) in [(0o600, "first"), (0o400, "second"), (0o600, "")] {
            put(root.path(), &ask("ssh/keys/id", mode), content.as_bytes()).unwrap();
            let seen = fs::metadata(run.join("ssh/keys/id")).unwrap();
            assert_eq!((seen.mode() & 0o7777, seen.len()), (mode, content.len() as u64));
            assert_eq!(fs::read_to_string(run.join("ssh/keys/id")).unwrap(), content);
        }
        for dir in ["ssh", "ssh/keys"] {
            assert_eq!(fs::metadata(run.join(dir)).unwrap().mode() & 0o7777, 0o700, "{dir}");
        }
        fs::set_permissions(run.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        put(root.path(), &ask("ssh/other", 0o600), b"").unwrap();
        assert_eq!(fs::metadata(run.join("ssh")).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(run.join("ssh")).unwrap().count(), 2, "nothing is left beside");
    }

    #[test]
    fn names_that_lead_elsewhere_or_are_the_guests_own_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let long = "x".repeat(MAX_NAME + 1);
        for name in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/..",
            "../a",
            "a/./b",
            "a b",
            "a\0b",
            "é",
            "sock",
            "sock/a",
            "shell",
            "worker.sock",
            ".hidden",
            &long,
        ] {
            assert_eq!(refusal(root.path(), &ask(name, 0o600)), ErrorCode::Invalid, "{name:.40}");
        }
        for mode in [0, 0o644, 0o700, 0o4600, 0o200] {
            assert_eq!(refusal(root.path(), &ask("a", mode)), ErrorCode::Invalid, "{mode:o}");
        }
        assert_eq!(refusal(root.path(), &PutSecret { uid: u32::MAX, ..ask("a", 0o600) }), ErrorCode::NoUser);
        put(root.path(), &ask("a/sock/.b_c-D.9", 0o600), b"").unwrap();
    }

    #[test]
    fn what_was_lent_is_gone_with_its_command_and_nothing_else_is() {
        let root = tempfile::tempdir().unwrap();
        let secrets = Arc::new(Secrets::new(root.path()));
        for name in ["prompt-1", "prompt-2", "ssh/id"] {
            secrets.put(&ask(name, 0o400)).unwrap();
        }
        secrets.put_git_config(b"kept").unwrap();
        let names = ["prompt-1", "gitconfig", "../run/prompt-2", "none"].map(str::to_owned);
        drop(CommandSecrets::new(&secrets, &names));
        let left = |name: &str| root.path().join(".coracle/run").join(name).exists();
        assert_eq!(["prompt-1", "prompt-2", "ssh/id", "gitconfig"].map(left), [false, true, true, true]);
    }

    #[test]
    fn what_waits_for_a_command_is_gone_with_who_placed_it_unless_it_began_or_was_placed_anew() {
        let root = tempfile::tempdir().unwrap();
        let secrets = Arc::new(Secrets::new(root.path()));
        let place = |name: &str| {
            let waiting = PendingSecret::new(&secrets, name);
            secrets.put(&ask(name, 0o400)).unwrap();
            waiting
        };
        let there = |name: &str| root.path().join(".coracle/run").join(name).exists();
        let alone = place("alone");
        assert!(alone.is_waiting() && there("alone"));
        drop(alone);
        assert!(!there("alone"));
        let begun = place("begun");
        let lent = CommandSecrets::new(&secrets, &["begun".to_owned()]);
        assert!(!begun.is_waiting());
        drop(begun);
        assert!(there("begun"), "its command has it");
        drop(lent);
        assert!(!there("begun"));
        let (first, second) = (place("twice"), place("twice"));
        drop(first);
        assert!(there("twice") && second.is_waiting());
        drop(second);
        assert!(!there("twice"));
        assert!(secrets.waiting().0.is_empty());
    }

    #[test]
    fn no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let (run, outside) = (root.path().join(".coracle/run"), root.path().join("outside"));
        fs::create_dir_all(run.join("d")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("f"), "outside").unwrap();
        symlink(&outside, run.join("dir")).unwrap();
        symlink(outside.join("f"), run.join("d/file")).unwrap();
        fs::create_dir(run.join("d/taken")).unwrap();
        assert_eq!(refusal(root.path(), &ask("dir/f", 0o600)), ErrorCode::WrongKind);
        assert_eq!(refusal(root.path(), &ask("d/taken", 0o600)), ErrorCode::WrongKind);
        put(root.path(), &ask("d/file", 0o600), b"mine").unwrap();
        assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "outside");
        assert!(fs::symlink_metadata(run.join("d/file")).unwrap().is_file());
        // Where the whole directory is a link nothing is written at all.
        fs::rename(&run, root.path().join(".coracle/was")).unwrap();
        symlink(&outside, &run).unwrap();
        assert_eq!(refusal(root.path(), &ask("new", 0o600)), ErrorCode::WrongKind);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_of_another_user_is_none_to_write_to() {
        if !geteuid().is_root() {
            return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
        }
        let root = tempfile::tempdir().unwrap();
        put(root.path(), &PutSecret { uid: 1000, gid: 1001, ..ask("ssh/id", 0o400) }, b"").unwrap();
        let seen = ["ssh", "ssh/id"].map(|it| fs::metadata(root.path().join(".coracle/run").join(it)).unwrap());
        assert!(seen.iter().all(|it| (it.uid(), it.gid()) == (1000, 1001)));
        assert_eq!(refusal(root.path(), &PutSecret { uid: 1002, ..ask("ssh/id", 0o600) }), ErrorCode::Denied);
    }
}

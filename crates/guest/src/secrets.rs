//! Secret files on the container's own tmpfs, where only the guest writes.
//!
//! **Invariant:** every directory on a path is opened relative to the one above it, and no link is followed: swapping
//! names in a user's own directory leads only to that user's own files.

pub(crate) mod session_env;

use std::collections::HashMap;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, fstat, fstatfs, mkdirat, openat, openat2,
    unlinkat,
};
use rustix::io::{Errno, Result as Done};
use rustix::process::{getegid, geteuid};

use crate::atomic::{AtomicFile, Durability};
use crate::protocol::body::Bytes;
use crate::protocol::{ErrorCode, PutSecret, RpcError};

/// Magic number of a tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// Names in `/.coracle/run` that belong to the guest, besides those that begin with a dot or end like a socket.
const RESERVED_NAMES: [&str; 3] = ["sock", "shell", GIT_CONFIG];

/// Configuration of git inside, which is not secret.
const GIT_CONFIG: &str = "gitconfig";

/// Longest name, in bytes.
const MAX_NAME: usize = 1000;

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The secret files of a container.
#[derive(Debug)]
pub(crate) struct Secrets {
    root: PathBuf,
    /// Held while a file is written: a directory that is being created does not belong to its user yet.
    writing: Mutex<()>,
    /// Files for commands that have not started, by name, and the number of the latest one.
    pending: Mutex<(HashMap<String, u64>, u64)>,
}

impl Secrets {
    /// The secrets of a container with this root directory.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), writing: Mutex::default(), pending: Mutex::default() }
    }

    fn pending(&self) -> MutexGuard<'_, (HashMap<String, u64>, u64)> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a whole file, replacing an existing one. Blocks.
    ///
    /// # Errors
    /// [`ErrorCode::Invalid`] for an invalid name or mode; [`ErrorCode::Denied`] if the directory for secret files is
    /// missing or a directory on the path belongs to another user; [`ErrorCode::WrongKind`] if a part of the path is no
    /// directory.
    pub(crate) fn put(&self, request: &PutSecret) -> Result<(), RpcError> {
        let _guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        put(&self.root, request, &request.content)
    }

    /// Writes git's configuration, readable by all users and writable by none. Blocks.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) fn put_git_config(&self, content: &[u8]) -> Result<(), RpcError> {
        let _guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = base(&self.root)?;
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let request =
            PutSecret { name: GIT_CONFIG.into(), uid, gid, mode: 0o444, content: Bytes::default(), lent: false };
        write(dir.as_fd(), GIT_CONFIG, &request, content).map_err(|errno| secret_error(GIT_CONFIG, errno))
    }
}

/// Secret files of one command: removed with this value.
#[derive(Debug)]
pub(crate) struct CommandSecrets(Arc<Secrets>, Vec<String>);

impl CommandSecrets {
    /// Takes these files, existing or not, out of the pending ones.
    pub(crate) fn new(secrets: &Arc<Secrets>, names: &[String]) -> Self {
        let mut pending = secrets.pending();
        for name in names {
            pending.0.remove(name);
        }
        drop(pending);
        Self(secrets.clone(), names.to_vec())
    }

    /// Leaves the files in place: another command uses them.
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
        let mut pending = secrets.pending();
        pending.1 += 1;
        let number = pending.1;
        pending.0.insert(name.to_owned(), number);
        Self(secrets.clone(), name.to_owned(), number)
    }

    /// Whether no command has taken it yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.0.pending().0.get(&self.1) == Some(&self.2)
    }
}

impl Drop for PendingSecret {
    fn drop(&mut self) {
        let mut pending = self.0.pending();
        if pending.0.get(&self.1) == Some(&self.2) {
            pending.0.remove(&self.1);
            let _ = remove(&self.0.root, &self.1);
        }
    }
}

/// Removes a file directly in the base directory; other files are refused.
fn remove(root: &Path, name: &str) -> Result<(), RpcError> {
    let [name] = parts(name)?[..] else { return Err(secret_error(name, Errno::NOTDIR)) };
    unlinkat(base(root)?, name, AtFlags::empty()).map_err(|errno| secret_error(name, errno))
}

fn put(root: &Path, request: &PutSecret, content: &[u8]) -> Result<(), RpcError> {
    let parts = parts(&request.name)?;
    let (name, dirs) = parts.split_last().expect("a name has a part");
    if ![0o400, 0o600].contains(&request.mode) {
        return Err(RpcError::new(ErrorCode::Invalid, format!("{:#o} is neither 0400 nor 0600", request.mode)));
    }
    if request.uid == u32::MAX || request.gid == u32::MAX {
        return Err(RpcError::new(ErrorCode::NoUser, format!("{} is neither a user nor a group", u32::MAX)));
    }
    let fault = |errno| secret_error(&request.name, errno);
    let mut dir = base(root)?;
    for part in dirs {
        dir = create_private_dir(dir.as_fd(), part, request).map_err(fault)?;
    }
    write(dir.as_fd(), name, request, content).map_err(fault)
}

/// Splits a name into its parts, if it is valid.
fn parts(name: &str) -> Result<Vec<&str>, RpcError> {
    let parts: Vec<&str> = name.split('/').collect();
    let is_allowed_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_plain = |part: &&str| !["", ".", ".."].contains(part) && part.bytes().all(is_allowed_byte);
    let is_reserved = |part: &str| RESERVED_NAMES.contains(&part) || part.starts_with('.') || part.ends_with(".sock");
    if name.len() > MAX_NAME || !parts.iter().all(is_plain) || parts.first().is_none_or(|it| is_reserved(it)) {
        return Err(RpcError::new(ErrorCode::Invalid, format!("`{name:.100}` is not a valid name for a secret file")));
    }
    Ok(parts)
}

/// Opens the directory of secret files, creating it if missing. PID 1 accepts only a tmpfs, whose content ends with the
/// container.
fn base(root: &Path) -> Result<OwnedFd, RpcError> {
    let fault = |errno: Errno| secret_error("", errno);
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
        return Err(RpcError::new(
            ErrorCode::Denied,
            "`/.coracle/run` is not a tmpfs; secrets must not be written to a disk",
        ));
    }
    Ok(base)
}

/// Opens a directory that only the user may access, creating it if missing.
fn create_private_dir(above: BorrowedFd<'_>, name: &str, request: &PutSecret) -> Done<OwnedFd> {
    let is_new = match mkdirat(above, name, Mode::RWXU) {
        Err(Errno::EXIST) => false,
        created => created.map(|()| true)?,
    };
    let dir = openat(above, name, DIR, Mode::empty())?;
    if is_new {
        set_owner(dir.as_fd(), request)?;
    }
    if fstat(&dir)?.st_uid != request.uid {
        return Err(Errno::ACCESS);
    }
    fchmod(&dir, Mode::RWXU)?;
    Ok(dir)
}

/// A file that a killed guest leaves behind is removed with the tmpfs.
fn write(dir: BorrowedFd<'_>, name: &str, request: &PutSecret, content: &[u8]) -> Done<()> {
    let mut new = AtomicFile::create(dir, Mode::RUSR | Mode::WUSR)?;
    new.file().write_all(content).map_err(|it| Errno::from_io_error(&it).unwrap_or(Errno::IO))?;
    fchmod(new.file(), Mode::from_raw_mode(request.mode))?;
    set_owner(new.file().as_fd(), request)?;
    new.commit(name.as_bytes(), true, Durability::Nothing).map(drop)
}

fn set_owner(file: BorrowedFd<'_>, request: &PutSecret) -> Done<()> {
    fchown(file, Some(Uid::from_raw(request.uid)), Some(Gid::from_raw(request.gid)))
}

fn secret_error(name: &str, errno: Errno) -> RpcError {
    let (code, why) = match errno {
        Errno::ACCESS | Errno::PERM => (ErrorCode::Denied, "belongs to another user".to_owned()),
        Errno::NOTDIR | Errno::LOOP | Errno::ISDIR => (ErrorCode::WrongKind, "is not a path for a file".to_owned()),
        errno => (ErrorCode::Io, format!("cannot be written: {}", std::io::Error::from(errno))),
    };
    RpcError::new(code, format!("`/.coracle/run/{name}` {why}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn request(name: &str, mode: u32) -> PutSecret {
        PutSecret {
            name: name.into(),
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            mode,
            content: Bytes::default(),
            lent: false,
        }
    }

    fn refusal(root: &Path, request: &PutSecret) -> ErrorCode {
        put(root, request, b"secret").unwrap_err().code
    }

    #[test]
    fn only_the_user_may_access_a_secret_file_and_its_directories() {
        let root = tempfile::tempdir().unwrap();
        let run = root.path().join(".coracle/run");
        for (mode, content) in [(0o600, "first"), (0o400, "second"), (0o600, "")] {
            put(root.path(), &request("ssh/keys/id", mode), content.as_bytes()).unwrap();
            let seen = fs::metadata(run.join("ssh/keys/id")).unwrap();
            assert_eq!((seen.mode() & 0o7777, seen.len()), (mode, content.len() as u64));
            assert_eq!(fs::read_to_string(run.join("ssh/keys/id")).unwrap(), content);
        }
        for dir in ["ssh", "ssh/keys"] {
            assert_eq!(fs::metadata(run.join(dir)).unwrap().mode() & 0o7777, 0o700, "{dir}");
        }
        fs::set_permissions(run.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        put(root.path(), &request("ssh/other", 0o600), b"").unwrap();
        assert_eq!(fs::metadata(run.join("ssh")).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(run.join("ssh")).unwrap().count(), 2, "no temporary file remains");
    }

    #[test]
    fn reserved_names_and_names_outside_the_directory_are_refused() {
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
            assert_eq!(refusal(root.path(), &request(name, 0o600)), ErrorCode::Invalid, "{name:.40}");
        }
        for mode in [0, 0o644, 0o700, 0o4600, 0o200] {
            assert_eq!(refusal(root.path(), &request("a", mode)), ErrorCode::Invalid, "{mode:o}");
        }
        assert_eq!(refusal(root.path(), &PutSecret { uid: u32::MAX, ..request("a", 0o600) }), ErrorCode::NoUser);
        put(root.path(), &request("a/sock/.b_c-D.9", 0o600), b"").unwrap();
    }

    #[test]
    fn only_the_secrets_of_a_command_are_removed_with_it() {
        let root = tempfile::tempdir().unwrap();
        let secrets = Arc::new(Secrets::new(root.path()));
        for name in ["prompt-1", "prompt-2", "ssh/id"] {
            secrets.put(&request(name, 0o400)).unwrap();
        }
        secrets.put_git_config(b"config").unwrap();
        let names = ["prompt-1", "gitconfig", "../run/prompt-2", "none"].map(str::to_owned);
        drop(CommandSecrets::new(&secrets, &names));
        let left = |name: &str| root.path().join(".coracle/run").join(name).exists();
        assert_eq!(["prompt-1", "prompt-2", "ssh/id", "gitconfig"].map(left), [false, true, true, true]);
    }

    #[test]
    fn a_pending_secret_is_removed_unless_its_command_started_or_it_was_replaced() {
        let root = tempfile::tempdir().unwrap();
        let secrets = Arc::new(Secrets::new(root.path()));
        let put_pending = |name: &str| {
            let pending = PendingSecret::new(&secrets, name);
            secrets.put(&request(name, 0o400)).unwrap();
            pending
        };
        let exists = |name: &str| root.path().join(".coracle/run").join(name).exists();
        let unused = put_pending("unused");
        assert!(unused.is_pending() && exists("unused"));
        drop(unused);
        assert!(!exists("unused"));
        let taken = put_pending("taken");
        let command = CommandSecrets::new(&secrets, &["taken".to_owned()]);
        assert!(!taken.is_pending());
        drop(taken);
        assert!(exists("taken"), "its command has it");
        drop(command);
        assert!(!exists("taken"));
        let (first, second) = (put_pending("twice"), put_pending("twice"));
        drop(first);
        assert!(exists("twice") && second.is_pending());
        drop(second);
        assert!(!exists("twice"));
        assert!(secrets.pending().0.is_empty());
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
        assert_eq!(refusal(root.path(), &request("dir/f", 0o600)), ErrorCode::WrongKind);
        assert_eq!(refusal(root.path(), &request("d/taken", 0o600)), ErrorCode::WrongKind);
        put(root.path(), &request("d/file", 0o600), b"mine").unwrap();
        assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "outside");
        assert!(fs::symlink_metadata(run.join("d/file")).unwrap().is_file());
        // If the base directory itself is a link, nothing is written.
        fs::rename(&run, root.path().join(".coracle/was")).unwrap();
        symlink(&outside, &run).unwrap();
        assert_eq!(refusal(root.path(), &request("new", 0o600)), ErrorCode::WrongKind);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        if !geteuid().is_root() {
            return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
        }
        let root = tempfile::tempdir().unwrap();
        put(root.path(), &PutSecret { uid: 1000, gid: 1001, ..request("ssh/id", 0o400) }, b"").unwrap();
        let seen = ["ssh", "ssh/id"].map(|it| fs::metadata(root.path().join(".coracle/run").join(it)).unwrap());
        assert!(seen.iter().all(|it| (it.uid(), it.gid()) == (1000, 1001)));
        assert_eq!(refusal(root.path(), &PutSecret { uid: 1002, ..request("ssh/id", 0o600) }), ErrorCode::Denied);
    }
}

//! Attributes of files.

use std::time::SystemTime;

use coracle::PersonSession;
use coracle_runtime::link::protocol::{FileEntry, FileKind};
use coracle_runtime::{Command, Exit, Ids};
use russh_sftp::protocol::{FileAttributes, FileMode};
use russh_sftp::server::StatusReply;

use super::status::{failed, failure, unsupported};

/// That of commands in a container.
const UMASK: u32 = 0o022;

/// What is at a path.
pub(super) fn of_entry(entry: &FileEntry) -> FileAttributes {
    let seconds = u32::try_from(entry.changed_ns / 1_000_000_000).unwrap_or_default();
    let kind = match entry.kind {
        FileKind::File => FileMode::REG,
        FileKind::Dir => FileMode::DIR,
        FileKind::Link => FileMode::LNK,
        FileKind::Special => FileMode::SOCK,
    };
    FileAttributes {
        size: Some(entry.size),
        uid: Some(entry.uid),
        gid: Some(entry.gid),
        permissions: Some(kind.bits() | (entry.mode & 0o7777)),
        atime: Some(seconds),
        mtime: Some(seconds),
        ..FileAttributes::default()
    }
}

/// A file that is being written and has no entry yet. Clients that mount by SFTP want to know its kind.
pub(super) fn of_new(user: Ids, mode: Option<u32>) -> FileAttributes {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = u32::try_from(now.as_secs()).ok();
    FileAttributes {
        uid: Some(user.uid),
        gid: Some(user.gid),
        permissions: Some(FileMode::REG.bits() | mode.unwrap_or(0o666 & !UMASK)),
        atime: now,
        mtime: now,
        ..FileAttributes::default()
    }
}

/// The same with the size of the moment, and with what is set when the file is closed.
pub(super) fn while_written(there: FileAttributes, size: u64, after: &FileAttributes) -> FileAttributes {
    let mut attrs = FileAttributes { size: Some(size), ..there };
    merge(&mut attrs, after);
    let mode = attrs.permissions.unwrap_or_default() & 0o7777;
    attrs.permissions = Some(FileMode::REG.bits() | mode);
    attrs
}

/// Permission bits of something new. The guest sets them exactly, and clients rely on the umask of a server: OpenSSH makes
/// directories with 0777.
pub(super) fn mode(attrs: &FileAttributes) -> Option<u32> {
    attrs.permissions.map(|it| it & 0o777 & !UMASK)
}

/// Adds what a client sets later to what it has set. A size is no part of it: its place among the writes counts.
pub(super) fn merge(set: &mut FileAttributes, later: &FileAttributes) {
    set.permissions = later.permissions.or(set.permissions);
    set.mtime = later.mtime.or(set.mtime);
    if later.uid.is_some() && later.gid.is_some() {
        (set.uid, set.gid) = (later.uid, later.gid);
    }
}

/// Changes attributes of what is at a path. The guest has no call for it, so the image's own programs do it.
pub(super) async fn set(session: &PersonSession, path: &str, attrs: &FileAttributes) -> Result<(), StatusReply> {
    if let Some(size) = attrs.size {
        run(session, &["truncate", "-s", &size.to_string(), "--", path]).await?;
    }
    if let Some(mode) = attrs.permissions {
        run(session, &["chmod", &format!("{:o}", mode & 0o7777), "--", path]).await?;
    }
    if let Some(mtime) = attrs.mtime {
        run(session, &["touch", "-c", "-m", "-d", &format!("@{mtime}"), "--", path]).await?;
    }
    // Last: another owner's file is not changed any more.
    if let (Some(uid), Some(gid)) = (attrs.uid, attrs.gid) {
        run(session, &["chown", &format!("{uid}:{gid}"), "--", path]).await?;
    }
    Ok(())
}

/// Runs a program of the image, which has to succeed.
pub(super) async fn run(session: &PersonSession, words: &[&str]) -> Result<(), StatusReply> {
    let command = Command::Argv(words.iter().map(|it| (*it).to_owned()).collect());
    let output = Box::pin(session.link.exec(session.exec(command))).await.map_err(|err| failed(&err))?;
    match output.exit {
        Exit::Code(0) => Ok(()),
        Exit::Code(127) => Err(unsupported(&format!("the image has no `{}`", words[0]))),
        _ => Err(failure(String::from_utf8_lossy(&output.stderr.bytes()).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::{FileAttributes, merge, mode};

    #[test]
    fn what_is_new_is_written_by_its_user_alone() {
        let of = |permissions| mode(&FileAttributes { permissions, ..FileAttributes::default() });
        assert_eq!((of(Some(0o40777)), of(Some(0o666)), of(None)), (Some(0o755), Some(0o644), None));
    }

    #[test]
    fn what_is_set_later_leaves_what_was_set_before() {
        let mut set = FileAttributes { permissions: Some(0o600), mtime: Some(1), ..FileAttributes::default() };
        let later = FileAttributes { mtime: Some(2), uid: Some(3), gid: Some(4), ..FileAttributes::default() };
        merge(&mut set, &later);
        assert_eq!((set.permissions, set.mtime, set.uid, set.gid), (Some(0o600), Some(2), Some(3), Some(4)));
    }
}

//! The requests of a client.

use std::collections::HashMap;

use coracle::PersonSession;
use coracle_runtime::ContainerPath;
use coracle_runtime::link::protocol::{FileEntry, FileKind, FileRef, UserSpec};
use russh_sftp::protocol::{
    Attrs, Data, File, FileAttributes, Handle, Name, OpenFlags, Packet, Status, StatusCode, Version,
};
use russh_sftp::server::{Handler, StatusReply};
use tokio_util::sync::DropGuard;

use super::attributes;
use super::reading::ReadHandle;
use super::status::{done, failed, failure, unsupported};
use super::writing::{UploadOptions, WriteHandle};

/// Entries of a directory in one answer.
const PAGE: usize = 128;

/// Entries of a directory.
const MAX_ENTRIES: u64 = 100_000;

/// Files and directories that are open at once.
const MAX_HANDLES: usize = 256;

/// Replaces what has the new name, as rename(2) does.
const POSIX_RENAME: &str = "posix-rename@openssh.com";

/// One client's open files.
pub(super) struct SftpHandler {
    session: PersonSession,
    handles: HashMap<String, OpenHandle>,
    next: u64,
    _over: DropGuard,
}

enum OpenHandle {
    Read(Box<ReadHandle>),
    Write { file: Box<WriteHandle>, append: bool },
    Dir(std::vec::IntoIter<FileEntry>),
}

impl SftpHandler {
    pub(super) fn new(session: PersonSession, over: DropGuard) -> Self {
        Self { session, handles: HashMap::new(), next: 0, _over: over }
    }

    fn at(&self, path: &str, follow: bool) -> Result<FileRef, StatusReply> {
        let user = self.session.user();
        let path = self.path(path)?;
        Ok(FileRef { user: UserSpec::Ids { uid: user.uid, gid: Some(user.gid) }, path, follow })
    }

    /// An absolute path: a relative one begins where commands run.
    fn path(&self, path: &str) -> Result<String, StatusReply> {
        let workdir = if path.starts_with('/') { "" } else { self.session.workdir().as_str() };
        let mut parts: Vec<&str> = Vec::new();
        for part in workdir.split('/').chain(path.split('/')) {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        let whole = ContainerPath::parse(format!("/{}", parts.join("/"))).map_err(|err| failure(&err.to_string()))?;
        Ok(whole.as_str().to_owned())
    }

    async fn entry(&self, path: &str, follow: bool) -> Result<FileEntry, StatusReply> {
        self.session.link.stat(self.at(path, follow)?).await.map_err(|err| failed(&err))
    }

    /// What is there, if anything is.
    async fn existing(&self, path: &str, follow: bool) -> Result<Option<FileEntry>, StatusReply> {
        match self.entry(path, follow).await {
            Ok(entry) => Ok(Some(entry)),
            Err(reply) if reply.status_code == StatusCode::NoSuchFile => Ok(None),
            Err(reply) => Err(reply),
        }
    }

    fn add(&mut self, id: u32, handle: OpenHandle) -> Result<Handle, StatusReply> {
        if self.handles.len() >= MAX_HANDLES {
            return Err(failure("too many files are open"));
        }
        self.next += 1;
        let name = self.next.to_string();
        self.handles.insert(name.clone(), handle);
        Ok(Handle { id, handle: name })
    }

    async fn open_write(&self, path: &str, flags: OpenFlags, mode: Option<u32>) -> Result<OpenHandle, StatusReply> {
        let there = self.existing(path, true).await?;
        match &there {
            Some(entry) if entry.kind != FileKind::File => return Err(failure("it is no regular file")),
            Some(_) if flags.contains(OpenFlags::EXCLUDE) => return Err(failure("it is there already")),
            None if !flags.contains(OpenFlags::CREATE) => return Err(StatusCode::NoSuchFile.into()),
            // The guest says so only at the first write, and clients name the path only when it cannot be opened.
            None => drop(self.entry(&format!("{path}/.."), true).await?),
            Some(_) => {}
        }
        let kept = there.filter(|_| !flags.contains(OpenFlags::TRUNCATE)).map_or(0, |it| it.size);
        let replace = !flags.contains(OpenFlags::EXCLUDE);
        let options = UploadOptions { at: self.at(path, true)?, mode, replace, kept };
        let file = Box::new(WriteHandle::open(&self.session, options));
        Ok(OpenHandle::Write { file, append: flags.contains(OpenFlags::APPEND) })
    }

    /// The file at a path, if it is open for writing: a file system that is mounted by SFTP opens a file, and cuts it off,
    /// changes its mode and asks for it by its path.
    fn open_at(&self, path: &str) -> Option<&WriteHandle> {
        self.handles.values().find_map(|it| match it {
            OpenHandle::Write { file, .. } if file.path == path => Some(&**file),
            _ => None,
        })
    }

    /// Sets attributes for when the file is closed.
    fn set_open(&mut self, path: &str, attrs: &FileAttributes) -> Result<(), StatusReply> {
        let open = self.handles.values_mut().filter_map(|it| match it {
            OpenHandle::Write { file, .. } if file.path == path => Some(file),
            _ => None,
        });
        open.into_iter().try_for_each(|it| it.set(attrs))
    }

    /// Attributes of what is at a path. A file that is open for writing has those that it will have when it is closed; a new
    /// one appears only then.
    async fn attributes(
        &self,
        path: &str,
        follow: bool,
        open: Option<&WriteHandle>,
    ) -> Result<FileAttributes, StatusReply> {
        let (there, open) = match (self.existing(path, follow).await?, open) {
            (None, None) => return Err(StatusCode::NoSuchFile.into()),
            (Some(entry), Some(open)) if entry.kind == FileKind::File => (attributes::of_entry(&entry), open),
            (Some(entry), _) => return Ok(attributes::of_entry(&entry)),
            (None, Some(open)) => (attributes::of_new(self.session.user(), open.mode), open),
        };
        Ok(attributes::while_written(there, open.end(), &open.after))
    }

    async fn remove_entry(&self, path: &str, dir: bool) -> Result<(), StatusReply> {
        let entry = self.entry(path, false).await?;
        if (entry.kind == FileKind::Dir) != dir {
            return Err(failure(if dir { "it is no directory" } else { "it is a directory" }));
        }
        self.session.link.remove(self.at(path, false)?, false).await.map_err(|err| failed(&err))
    }

    async fn rename_entry(&self, from: &str, to: &str, replace: bool) -> Result<(), StatusReply> {
        let (from, to) = (self.path(from)?, self.path(to)?);
        match self.existing(&to, false).await? {
            Some(there) if !replace || there.kind == FileKind::Dir => Err(failure("the new name is taken")),
            None if from.rsplit_once('/').map(|it| it.0) == to.rsplit_once('/').map(|it| it.0) => {
                let name = to.rsplit_once('/').map_or("", |it| it.1);
                let renamed = self.session.link.rename(self.at(&from, false)?, name).await;
                renamed.map(drop).map_err(|err| failed(&err))
            }
            there => {
                let flags = move_flags(there.map(|it| it.kind));
                attributes::run(&self.session, &["mv", flags, "--", &from, &to]).await
            }
        }
    }
}

impl Handler for SftpHandler {
    type Error = StatusReply;

    fn unimplemented(&self) -> StatusReply {
        unsupported("this server does not know the request")
    }

    async fn init(&mut self, _: u32, _: HashMap<String, String>) -> Result<Version, StatusReply> {
        let mut version = Version::new();
        version.extensions.insert(POSIX_RENAME.to_owned(), "1".to_owned());
        Ok(version)
    }

    async fn open(
        &mut self,
        id: u32,
        path: String,
        flags: OpenFlags,
        attrs: FileAttributes,
    ) -> Result<Handle, StatusReply> {
        let handle = if flags.intersects(OpenFlags::WRITE | OpenFlags::APPEND) {
            self.open_write(&path, flags, attributes::mode(&attrs)).await?
        } else {
            OpenHandle::Read(Box::new(ReadHandle::open(&self.session, self.at(&path, true)?).await?))
        };
        self.add(id, handle)
    }

    async fn close(&mut self, id: u32, handle: String) -> Result<Status, StatusReply> {
        if let Some(OpenHandle::Write { file, .. }) = self.handles.remove(&handle) {
            let (path, after) = (file.path.clone(), file.after.clone());
            file.close(&self.session).await?;
            attributes::set(&self.session, &path, &after).await?;
        }
        Ok(done(id))
    }

    async fn read(&mut self, id: u32, handle: String, offset: u64, len: u32) -> Result<Data, StatusReply> {
        match self.handles.get_mut(&handle) {
            Some(OpenHandle::Read(file)) => Ok(Data { id, data: file.read(&self.session, offset, len).await? }),
            _ => Err(failure("it is not open for reading alone")),
        }
    }

    async fn write(&mut self, id: u32, handle: String, offset: u64, data: Vec<u8>) -> Result<Status, StatusReply> {
        match self.handles.get_mut(&handle) {
            Some(OpenHandle::Write { file, append }) => {
                let offset = if *append { file.end() } else { offset };
                file.write(&self.session, offset, data).await?;
                Ok(done(id))
            }
            _ => Err(failure("it is not open for writing")),
        }
    }

    async fn lstat(&mut self, id: u32, path: String) -> Result<Attrs, StatusReply> {
        Ok(Attrs { id, attrs: self.attributes(&path, false, self.open_at(&self.path(&path)?)).await? })
    }

    async fn stat(&mut self, id: u32, path: String) -> Result<Attrs, StatusReply> {
        Ok(Attrs { id, attrs: self.attributes(&path, true, self.open_at(&self.path(&path)?)).await? })
    }

    async fn fstat(&mut self, id: u32, handle: String) -> Result<Attrs, StatusReply> {
        let attrs = match self.handles.get(&handle) {
            Some(OpenHandle::Read(file)) => attributes::of_entry(&file.entry),
            Some(OpenHandle::Write { file, .. }) => self.attributes(&file.path, true, Some(file)).await?,
            _ => return Err(failure("it is no open file")),
        };
        Ok(Attrs { id, attrs })
    }

    async fn setstat(&mut self, id: u32, path: String, attrs: FileAttributes) -> Result<Status, StatusReply> {
        let path = self.path(&path)?;
        if self.open_at(&path).is_none() {
            attributes::set(&self.session, &path, &attrs).await?;
            return Ok(done(id));
        }
        // What is refused is refused at once, and not when the file is closed.
        if self.existing(&path, true).await?.is_some() {
            let now = FileAttributes { size: None, ..attrs.clone() };
            attributes::set(&self.session, &path, &now).await?;
        }
        self.set_open(&path, &attrs).map(|()| done(id))
    }

    async fn fsetstat(&mut self, id: u32, handle: String, attrs: FileAttributes) -> Result<Status, StatusReply> {
        match self.handles.get_mut(&handle) {
            Some(OpenHandle::Write { file, .. }) => file.set(&attrs).map(|()| done(id)),
            _ => Err(failure("it is not open for writing")),
        }
    }

    async fn opendir(&mut self, id: u32, path: String) -> Result<Handle, StatusReply> {
        let (entries, more) =
            self.session.link.list(self.at(&path, true)?, MAX_ENTRIES).await.map_err(|err| failed(&err))?;
        if more {
            return Err(failure("the directory has more than 100000 entries"));
        }
        self.add(id, OpenHandle::Dir(entries.into_iter()))
    }

    async fn readdir(&mut self, id: u32, handle: String) -> Result<Name, StatusReply> {
        let Some(OpenHandle::Dir(entries)) = self.handles.get_mut(&handle) else {
            return Err(failure("it is no open directory"));
        };
        let files: Vec<File> =
            entries.by_ref().take(PAGE).map(|it| File::new(it.name.clone(), attributes::of_entry(&it))).collect();
        if files.is_empty() { Err(StatusCode::Eof.into()) } else { Ok(Name { id, files }) }
    }

    async fn remove(&mut self, id: u32, path: String) -> Result<Status, StatusReply> {
        self.remove_entry(&path, false).await?;
        Ok(done(id))
    }

    async fn rmdir(&mut self, id: u32, path: String) -> Result<Status, StatusReply> {
        self.remove_entry(&path, true).await?;
        Ok(done(id))
    }

    async fn mkdir(&mut self, id: u32, path: String, attrs: FileAttributes) -> Result<Status, StatusReply> {
        let mode = attributes::mode(&attrs).unwrap_or(0o755);
        let made = self.session.link.make_dir(self.at(&path, false)?, mode, false).await;
        made.map(|_| done(id)).map_err(|err| failed(&err))
    }

    async fn realpath(&mut self, id: u32, path: String) -> Result<Name, StatusReply> {
        Ok(Name { id, files: vec![File::dummy(self.path(&path)?)] })
    }

    async fn rename(&mut self, id: u32, from: String, to: String) -> Result<Status, StatusReply> {
        self.rename_entry(&from, &to, false).await?;
        Ok(done(id))
    }

    async fn readlink(&mut self, id: u32, path: String) -> Result<Name, StatusReply> {
        let target = self.entry(&path, false).await?.link.ok_or_else(|| failure("it is no link"))?;
        Ok(Name { id, files: vec![File::dummy(target)] })
    }

    /// OpenSSH gives the target first, against the draft; other clients do as it does.
    async fn symlink(&mut self, id: u32, target: String, path: String) -> Result<Status, StatusReply> {
        let made = self.session.link.make_link(self.at(&path, false)?, &target, false).await;
        made.map(|_| done(id)).map_err(|err| failed(&err))
    }

    async fn extended(&mut self, id: u32, request: String, data: Vec<u8>) -> Result<Packet, StatusReply> {
        let [from, to] = match request.as_str() {
            POSIX_RENAME => {
                two_texts(&data).ok_or_else(|| StatusCode::BadMessage.with_message("two paths are needed"))?
            }
            _ => return Err(self.unimplemented()),
        };
        self.rename_entry(&from, &to, true).await?;
        Ok(Packet::Status(done(id)))
    }
}

/// Without `-T` what goes onto a link to a directory goes into that directory. An older BusyBox knows no `-T`, so nothing
/// else needs it.
fn move_flags(there: Option<FileKind>) -> &'static str {
    if there == Some(FileKind::Link) { "-fT" } else { "-f" }
}

/// Two texts, each after its length.
fn two_texts(data: &[u8]) -> Option<[String; 2]> {
    fn text(data: &[u8]) -> Option<(String, &[u8])> {
        let (length, rest) = data.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        Some((String::from_utf8(text.to_vec()).ok()?, rest))
    }
    let (first, rest) = text(data)?;
    Some([first, text(rest)?.0])
}

#[cfg(test)]
mod tests {
    use super::{FileKind, move_flags, two_texts};

    #[test]
    fn only_a_link_is_replaced_with_an_option_that_not_all_images_know() {
        assert_eq!([None, Some(FileKind::File), Some(FileKind::Link)].map(move_flags), ["-f", "-f", "-fT"]);
    }

    #[test]
    fn lengths_that_lie_are_no_texts() {
        assert_eq!(two_texts(b"\0\0\0\x01a\0\0\0\x02bc"), Some(["a".to_owned(), "bc".to_owned()]));
        assert_eq!(two_texts(b"\0\0\0\x01a\0\0\0\x03bc"), None);
        assert_eq!(two_texts(b"\xff\xff\xff\xffa"), None);
    }
}

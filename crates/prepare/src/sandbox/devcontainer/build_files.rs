//! Reads the files of a `devcontainer.json` and of its build: from a commit, or from a directory on this host.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;

use coracle_archive::transfer::Writer;
use coracle_context::failure::{Code, Failure};
use coracle_devcontainer::file::is_excluded;
use coracle_host::tree::{DirHandle, Node};
use coracle_worktrees::WorktreeManager;
use coracle_worktrees::commit_files::{CommitFile, CommitFileKind, PackPaths, RepoCommit, pack_file};
use sha2::{Digest as _, Sha256};

use super::image::{MAX_CONTEXT, missing};

/// Maximum depth of directories.
const DEEPEST: usize = 64;

/// The files that a build may read.
#[derive(Clone, Copy, Debug)]
pub enum BuildFiles<'a> {
    /// Of a commit in the host's mirror of the repository.
    Commit { worktrees: &'a WorktreeManager, seen: &'a RepoCommit },
    /// In a directory that the user allows. It is read through an open handle that follows no link, since commands in a
    /// container may change it meanwhile.
    Directory(&'a DirHandle),
}

impl BuildFiles<'_> {
    /// Lists the files at or below a path; an empty path means all.
    pub(super) async fn list(self, below: &str) -> Result<Vec<CommitFile>, Failure> {
        match self {
            Self::Commit { worktrees, seen } => Ok(worktrees.seen_files(seen, below).await?),
            Self::Directory(dir) => {
                let (dir, below) = (dir.clone(), below.to_owned());
                tokio::task::spawn_blocking(move || listed(&dir, &below)).await.map_err(Failure::internal)?
            }
        }
    }

    /// Reads a file. Fails if it is longer than `max_bytes`.
    pub(super) async fn content(self, file: &CommitFile, max_bytes: usize) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Commit { worktrees, seen } => Ok(worktrees.seen_content(seen, file, max_bytes).await?),
            Self::Directory(_) if file.size > max_bytes as u64 => {
                Err(missing(&file.path, &format!("has {} bytes; at most {max_bytes} are read", file.size)))
            }
            Self::Directory(dir) => {
                let (dir, file) = (dir.clone(), file.clone());
                tokio::task::spawn_blocking(move || read_again(&dir, &file)).await.map_err(Failure::internal)?
            }
        }
    }

    /// Writes files into an archive.
    pub(super) async fn pack(
        self,
        files: &[CommitFile],
        paths: PackPaths<'_>,
        tar: &mut Writer,
    ) -> Result<(), Failure> {
        let dir = match self {
            Self::Commit { worktrees, seen } => return Ok(worktrees.pack(seen, files, paths, tar).await?),
            Self::Directory(dir) => dir,
        };
        let mut made = std::collections::BTreeSet::new();
        for file in files {
            let (dir, it) = (dir.clone(), file.clone());
            let read = tokio::task::spawn_blocking(move || read_again(&dir, &it));
            let content = read.await.map_err(Failure::internal)??;
            pack_file(tar, &mut made, paths, file, &content).map_err(Failure::internal)?;
        }
        Ok(())
    }
}

fn listed(root: &DirHandle, below: &str) -> Result<Vec<CommitFile>, Failure> {
    let unreadable = |err: io::Error| missing(below, &format!("cannot be read: {err}"));
    let mut scan = DirectoryScan { files: Vec::new(), bytes: 0 };
    if below.is_empty() {
        scan.dir(root, "", 0)?;
        return Ok(scan.files);
    }
    let (above, name) = below.rsplit_once('/').unwrap_or(("", below));
    let above = match root.descend(parts(above)) {
        Ok(above) => above,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => return Err(unreadable(err)),
    };
    if let Some(node) = above.entry_kind(OsStr::new(name)).map_err(unreadable)? {
        scan.entry(&above, OsStr::new(name), node, below, 0)?;
    }
    Ok(scan.files)
}

fn parts(path: &str) -> impl Iterator<Item = &OsStr> {
    path.split('/').filter(|it| !it.is_empty()).map(OsStr::new)
}

/// The files that a scan has found.
struct DirectoryScan {
    files: Vec<CommitFile>,
    bytes: u64,
}

impl DirectoryScan {
    fn dir(&mut self, dir: &DirHandle, path: &str, depth: usize) -> Result<(), Failure> {
        if depth > DEEPEST {
            return Err(missing(path, "lies too deep"));
        }
        for (name, node) in dir.entries().map_err(|err| missing(path, &format!("cannot be read: {err}")))? {
            let Some(text) = name.to_str().filter(|it| *it != ".git") else { continue };
            let path = if path.is_empty() { text.to_owned() } else { format!("{path}/{text}") };
            self.entry(dir, &name, node, &path, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, dir: &DirHandle, name: &OsStr, node: Node, path: &str, depth: usize) -> Result<(), Failure> {
        let failed = |err: io::Error| missing(path, &format!("cannot be read: {err}"));
        let (kind, content) = match node {
            Node::Dir => return self.dir(&dir.enter(name).map_err(failed)?, path, depth + 1),
            Node::Other => return Ok(()),
            // Excluded files are listed, but not read.
            _ if is_excluded(path) => (CommitFileKind::File, FileSum::default()),
            Node::Link => (
                CommitFileKind::Link,
                FileSum::from_content(dir.link(name).map_err(failed)?.as_bytes()).map_err(failed)?,
            ),
            Node::File => {
                let opened = dir.open(name).map_err(failed)?;
                let kind = if opened.mode & 0o111 == 0 { CommitFileKind::File } else { CommitFileKind::Program };
                (kind, FileSum::from_content(opened.file).map_err(failed)?)
            }
        };
        self.bytes += content.size;
        if self.files.len() as u64 >= MAX_CONTEXT.max_entries || self.bytes > MAX_CONTEXT.max_bytes {
            let message = format!(
                "a build sees at most {} files and {} bytes of the directory",
                MAX_CONTEXT.max_entries, MAX_CONTEXT.max_bytes
            );
            return Err(Failure::new(Code::LimitReached, message)
                .hint("name a smaller `build.context` in the devcontainer.json"));
        }
        self.files.push(CommitFile { path: path.to_owned(), oid: content.sum, kind, size: content.size });
        Ok(())
    }
}

/// Length and digest of a file's content.
#[derive(Default)]
struct FileSum {
    sum: String,
    size: u64,
}

impl FileSum {
    fn from_content(mut from: impl io::Read) -> io::Result<Self> {
        let (mut hash, mut size) = (Sha256::new(), 0);
        let mut buffer = vec![0; 64 << 10];
        loop {
            match from.read(&mut buffer)? {
                0 => return Ok(Self { sum: hex::encode(hash.finalize()), size }),
                length => {
                    hash.update(&buffer[..length]);
                    size += length as u64;
                }
            }
        }
    }
}

/// Reads a listed file again. Fails if it changed since, because the image is cached by the listed digests.
fn read_again(root: &DirHandle, file: &CommitFile) -> Result<Vec<u8>, Failure> {
    let failed = |err: io::Error| missing(&file.path, &format!("cannot be read: {err}"));
    let (above, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let dir = root.descend(parts(above)).map_err(failed)?;
    let name = OsStr::new(name);
    let mut content = Vec::new();
    match file.kind {
        CommitFileKind::Link => content.extend(dir.link(name).map_err(failed)?.as_bytes()),
        _ => {
            let opened = dir.open(name).map_err(failed)?;
            opened.file.take(file.size + 1).read_to_end(&mut content).map_err(failed)?;
        }
    }
    if FileSum::from_content(content.as_slice()).map_err(failed)?.sum != file.oid {
        return Err(missing(&file.path, "changed while it was read"));
    }
    Ok(content)
}

//! The files of a workspace by its guest.

use coracle_protocol::workspace::{SearchLimits, WorkspaceEntry, WorkspaceErrorCode, WorkspaceOp, WorkspaceReply};
use coracle_types::ContainerPath;
use jiff::Timestamp;

use super::path::{folded, is_addressable};
use super::snapshot::{self, Tag};
use super::{
    FsEntry, FsError, FsKind, GuestFs, LineMatch, LineQuery, MAX_CONTENT, Result, SearchResults, WriteOptions,
};

/// Limit of results, which is the guest's.
const MAX_RESULTS: u32 = 100_000;

/// Limits of a search.
const BOUNDS: SearchLimits = SearchLimits { most: MAX_RESULTS, entries: 200_000, within_ms: 10_000 };

/// Bytes that are read at once.
const CHUNK: u32 = 8 << 20;

/// How often a file of several pieces is read again when it is replaced concurrently.
const MAX_READ: usize = 5;

/// How often a removal that takes longer is requested again.
const REMOVE_WITHIN_MS: u64 = 60_000;
const MAX_REMOVE: usize = 10;

/// The tool that touched files name.
const TOOL: &str = "workspace_fs";

impl GuestFs {
    fn path(&self, text: &str) -> Result<String> {
        folded(&self.root, text)
    }

    /// The path of something that will be changed.
    fn changeable(&self, text: &str) -> Result<String> {
        let path = self.path(text)?;
        if self.read_only { Err(FsError::ReadOnly(text.to_owned())) } else { Ok(path) }
    }

    /// Runs a request on the path `text`.
    async fn act(&self, text: &str, act: WorkspaceOp) -> Result<WorkspaceReply> {
        match self.request(act).await? {
            WorkspaceReply::Not(trouble) => Err(FsError::from_workspace_error(trouble, text)),
            done => Ok(done),
        }
    }

    /// The same for a search: an invalid pattern is reported with the pattern instead of the path.
    async fn search(&self, text: &str, pattern: &str, act: WorkspaceOp) -> Result<WorkspaceReply> {
        match self.request(act).await? {
            WorkspaceReply::Not(it) if it.code == WorkspaceErrorCode::BadPattern => {
                Err(FsError::invalid(pattern, format!("is no pattern: {}", it.detail)))
            }
            WorkspaceReply::Not(trouble) => Err(FsError::from_workspace_error(trouble, text)),
            done => Ok(done),
        }
    }

    fn entry(&self, item: WorkspaceEntry) -> FsEntry {
        FsEntry {
            kind: item.kind,
            size: item.size,
            version: item.version,
            changed: Timestamp::from_millisecond(item.changed_ms).unwrap_or(Timestamp::UNIX_EPOCH),
            target: item.target,
            addressable: !item.odd && is_addressable(&self.root, &item.path),
            path: item.path,
        }
    }

    fn entries(&self, items: Vec<WorkspaceEntry>) -> Vec<FsEntry> {
        items.into_iter().map(|it| self.entry(it)).collect()
    }

    async fn piece(&self, text: &str, path: &str, offset: u64) -> Result<(Vec<u8>, u64)> {
        let act = WorkspaceOp::Bytes { path: path.to_owned(), offset, limit: CHUNK };
        let WorkspaceReply::Bytes { content, size, .. } = self.act(text, act).await? else {
            return Err(unexpected(text));
        };
        if size > MAX_CONTENT {
            return Err(FsError::TooLarge(text.to_owned()));
        }
        Ok((content.0, size))
    }

    /// All of a file, unless it was replaced between two pieces.
    async fn whole(&self, text: &str, path: &str) -> Result<Option<Vec<u8>>> {
        let before = self.stat(text).await?;
        let mut bytes = Vec::new();
        loop {
            let (piece, size) = self.piece(text, path, bytes.len() as u64).await?;
            let (first, ends) = (bytes.is_empty(), piece.is_empty());
            bytes.extend(piece);
            match bytes.len() as u64 >= size {
                // One piece is of one moment by itself.
                true if first => return Ok(Some(bytes)),
                true => break,
                false if ends || size != before.size => return Ok(None),
                false => {}
            }
        }
        Ok((self.stat(text).await? == before).then_some(bytes))
    }
}

impl GuestFs {
    /// The directory inside that all paths begin at.
    #[must_use]
    pub fn root(&self) -> &ContainerPath {
        &self.root
    }

    /// Everything that would change something is [`FsError::ReadOnly`].
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// A whole text.
    ///
    /// # Errors
    /// [`FsError::Binary`] for what is no UTF-8, [`FsError::TooLarge`] above [`MAX_CONTENT`], [`FsError::NotFound`],
    /// [`FsError::IsDirectory`], [`FsError::NotDirectory`] when a part above it is a file, [`FsError::Escape`];
    /// [`FsError::Invalid`] for a pipe, socket or device, which is never opened.
    pub async fn read(&self, path: &str) -> Result<String> {
        String::from_utf8(self.read_bytes(path).await?).map_err(|_| FsError::Binary(path.to_owned()))
    }

    /// A whole file, as it is at one moment.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for `Binary`.
    pub async fn read_bytes(&self, path: &str) -> Result<Vec<u8>> {
        let place = self.path(path)?;
        for _ in 0..MAX_READ {
            if let Some(bytes) = self.whole(path, &place).await? {
                return Ok(bytes);
            }
        }
        Err(FsError::Io { path: path.to_owned(), detail: "it changes all the time".into() })
    }

    /// Whether a path leads to anything. A link whose target is missing does not.
    ///
    /// # Errors
    /// [`FsError::Escape`] for a path outside, whether it exists or not.
    pub async fn exists(&self, path: &str) -> Result<bool> {
        match self.stat(path).await {
            Ok(_) => Ok(true),
            Err(FsError::NotFound(_) | FsError::NotDirectory(_)) => Ok(false),
            Err(err) => Err(err),
        }
    }

    /// Describes a file, following links.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::Escape`].
    pub async fn stat(&self, path: &str) -> Result<FsEntry> {
        let act = WorkspaceOp::Stat { path: self.path(path)? };
        match self.act(path, act).await? {
            WorkspaceReply::Found(item) => Ok(self.entry(item)),
            _ => Err(unexpected(path)),
        }
    }

    /// Lists a directory, sorted by the bytes of the names.
    ///
    /// # Errors
    /// As [`stat`](Self::stat); [`FsError::NotDirectory`] for a file.
    pub async fn list(&self, path: &str) -> Result<SearchResults<FsEntry>> {
        let act = WorkspaceOp::List { path: self.path(path)?, most: MAX_RESULTS };
        match self.act(path, act).await? {
            WorkspaceReply::Listed { entries, omitted, .. } => {
                Ok(SearchResults { items: self.entries(entries), omitted, complete: true })
            }
            _ => Err(unexpected(path)),
        }
    }

    /// Regular files below a directory whose path from there matches, sorted. The patterns of the tool `glob`:
    /// directories named `.git` are entered only when path or pattern name them.
    ///
    /// # Errors
    /// As [`list`](Self::list); [`FsError::Invalid`] for a pattern that is none or has `..`.
    pub async fn glob(&self, path: &str, pattern: &str) -> Result<SearchResults<FsEntry>> {
        let (place, searched) = (self.path(path)?, checked(pattern)?.to_owned());
        let act = WorkspaceOp::Glob { path: place, pattern: searched, gitignore: false, bounds: BOUNDS };
        match self.search(path, pattern, act).await? {
            WorkspaceReply::Globbed { entries, omitted, complete } => {
                Ok(SearchResults { items: self.entries(entries), omitted, complete })
            }
            _ => Err(unexpected(path)),
        }
    }

    /// Lines that match, in one file or all below a directory, sorted by path and number.
    ///
    /// # Errors
    /// As [`stat`](Self::stat); [`FsError::Invalid`] for a pattern that is none.
    pub async fn grep(&self, path: &str, lines: &LineQuery<'_>) -> Result<SearchResults<LineMatch>> {
        if lines.pattern.is_empty() {
            return Err(FsError::invalid(lines.pattern, "is no pattern"));
        }
        let act = WorkspaceOp::Grep {
            path: self.path(path)?,
            pattern: lines.pattern.to_owned(),
            glob: lines.glob.map(checked).transpose()?.map(str::to_owned),
            ignore_case: lines.ignore_case,
            context: lines.context,
            gitignore: false,
            bounds: BOUNDS,
        };
        match self.search(path, lines.pattern, act).await? {
            WorkspaceReply::Grepped { matches, omitted, complete } => {
                Ok(SearchResults { items: matches, omitted, complete })
            }
            _ => Err(unexpected(path)),
        }
    }

    /// Writes a text, as [`write_bytes`](Self::write_bytes).
    ///
    /// # Errors
    /// As [`write_bytes`](Self::write_bytes).
    pub async fn write(&self, path: &str, text: &str, how: WriteOptions) -> Result<FsEntry> {
        self.write_bytes(path, text.as_bytes(), how).await
    }

    /// Writes a file atomically: a reader sees the old bytes or the new. An existing file keeps its mode, and a link
    /// that leads inside is followed.
    ///
    /// # Errors
    /// [`FsError::Exists`] with [`WriteMode::Create`](super::WriteMode::Create), [`FsError::NotFound`] for a missing
    /// parent that is not to be made, [`FsError::NotDirectory`], [`FsError::IsDirectory`], [`FsError::TooLarge`],
    /// [`FsError::Escape`], [`FsError::ReadOnly`], [`FsError::Denied`], [`FsError::Full`].
    pub async fn write_bytes(&self, path: &str, bytes: &[u8], how: WriteOptions) -> Result<FsEntry> {
        let place = self.changeable(path)?;
        if bytes.len() as u64 > MAX_CONTENT {
            return Err(FsError::TooLarge(path.to_owned()));
        }
        if let Some((above, _)) = place.rsplit_once('/').filter(|_| !how.create_parents)
            && self.stat(above).await.map_err(|err| named(err, path))?.kind != FsKind::Directory
        {
            return Err(FsError::NotDirectory(path.to_owned()));
        }
        let (executable, seen, tool) = (None, false, TOOL.to_owned());
        let act = WorkspaceOp::Write { path: place, content: bytes.into(), how: how.mode, executable, seen, tool };
        match self.act(path, act).await? {
            WorkspaceReply::Written(written) => Ok(self.entry(written.file)),
            _ => Err(unexpected(path)),
        }
    }

    /// Removes a file, a link (never what it leads to) or an empty directory; with `recursive` a directory with all that is
    /// in it.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotEmpty`], [`FsError::Escape`], [`FsError::ReadOnly`], [`FsError::Denied`];
    /// [`FsError::Invalid`] for the root.
    pub async fn delete(&self, path: &str, recursive: bool) -> Result<()> {
        let place = self.changeable(path)?;
        if place.is_empty() {
            return Err(FsError::invalid(path, "is the workspace itself"));
        }
        for _ in 0..MAX_REMOVE {
            let (path_inside, tool) = (place.clone(), TOOL.to_owned());
            let act = match recursive {
                true => WorkspaceOp::Remove { path: path_inside, within_ms: REMOVE_WITHIN_MS, tool },
                false => WorkspaceOp::RemoveOne { path: path_inside, tool },
            };
            match self.act(path, act).await? {
                WorkspaceReply::Removed { complete: true, .. } => return Ok(()),
                WorkspaceReply::Removed { .. } => {}
                _ => return Err(unexpected(path)),
            }
        }
        Err(FsError::Io { path: path.to_owned(), detail: "its removal takes too long".into() })
    }

    /// Makes a directory, with `parents` those above it, too.
    ///
    /// # Errors
    /// [`FsError::Exists`] for a file, and without `exist_ok` for a directory; [`FsError::NotFound`] for a missing parent,
    /// [`FsError::NotDirectory`], [`FsError::Escape`], [`FsError::ReadOnly`], [`FsError::Denied`].
    pub async fn mkdir(&self, path: &str, parents: bool, exist_ok: bool) -> Result<()> {
        let act = WorkspaceOp::MakeDir { path: self.changeable(path)?, parents, exist_ok };
        self.act(path, act).await.map(drop)
    }

    /// Saves all files and links under a tag, and returns the id of the snapshot, until [`forget`](Self::forget).
    ///
    /// It stores names, bytes, link targets and whether a file can be executed; ignored files as all others. Directories
    /// named `.git`, empty directories, pipes, sockets and devices are not. It lies outside of the workspace, in the
    /// container, and goes with it. A tag has 1 to 64 letters, digits, `.`, `_` and `-`, begins with a letter or digit,
    /// has no `..` and does not end in `.` or `.lock`.
    ///
    /// # Errors
    /// [`FsError::Exists`] for a tag that is taken, [`FsError::Unsupported`] without a git in the image,
    /// [`FsError::Git`] when it fails: a file or directory that the user cannot read, one with a name that git keeps for
    /// itself (such as `.GIT`), no space.
    pub async fn snapshot(&self, tag: &str) -> Result<String> {
        // It changes nothing in the workspace.
        snapshot::take(self, &Tag::parse(tag)?).await
    }

    /// Restores exactly the files and links of a tag: changed files get their old content, removed ones return, and
    /// later ones are removed, including ignored files and whole repositories. Left alone is what no snapshot contains,
    /// in directories that this one has: their `.git`, pipes, sockets and devices. An unchanged file is not touched.
    /// Nothing is removed before the whole snapshot is known to be readable. This is no single step: a reader may see
    /// part of it, and a file that cannot be removed makes it fail after the rest was done.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for an unknown tag, [`FsError::ReadOnly`], [`FsError::Unsupported`], [`FsError::Git`].
    pub async fn restore(&self, tag: &str) -> Result<()> {
        let tag = Tag::parse(tag)?;
        if self.read_only {
            return Err(FsError::ReadOnly(self.root.to_string()));
        }
        snapshot::restore(self, &tag).await
    }

    /// Lets go of a tag. What no other snapshot keeps is freed with it if it was written at least a quarter of an hour ago,
    /// else when another tag goes: a snapshot that is just being taken may need it.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for an unknown tag, [`FsError::ReadOnly`], [`FsError::Unsupported`], [`FsError::Git`].
    pub async fn forget(&self, tag: &str) -> Result<()> {
        let tag = Tag::parse(tag)?;
        if self.read_only {
            return Err(FsError::ReadOnly(self.root.to_string()));
        }
        snapshot::forget(self, &tag).await
    }
}

/// A pattern for paths, without a slash at its start.
fn checked(pattern: &str) -> Result<&str> {
    if pattern.contains('\0') || pattern.split('/').any(|it| it == "..") {
        return Err(FsError::invalid(pattern, "has a NUL or `..`"));
    }
    Ok(pattern.trim_start_matches('/'))
}

/// An error of a directory is reported with the path of the file that was to be created in it.
fn named(err: FsError, path: &str) -> FsError {
    match err {
        FsError::NotFound(_) => FsError::NotFound(path.to_owned()),
        FsError::NotDirectory(_) => FsError::NotDirectory(path.to_owned()),
        FsError::Escape(_) => FsError::Escape(path.to_owned()),
        err => err,
    }
}

/// The guest's answer has another type than the request requires, which Coracle's guest never sends.
fn unexpected(path: &str) -> FsError {
    FsError::Io { path: path.to_owned(), detail: "the guest answered something else".into() }
}

//! What every implementation of the files of a workspace does.

use async_trait::async_trait;
use coracle_runtime::ContainerPath;
use jiff::Timestamp;

#[expect(unused_imports, reason = "doc")]
use super::error::{FsError, MAX_CONTENT, Result};

/// The files of a workspace. Every implementation passes the contract in `tests/workspace_fs`.
#[async_trait]
pub trait WorkspaceFs: std::fmt::Debug + Send + Sync {
    /// The directory inside that all paths begin at.
    fn root(&self) -> &ContainerPath;

    /// Everything that would change something is [`FsError::ReadOnly`].
    fn read_only(&self) -> bool;

    /// A whole text.
    ///
    /// # Errors
    /// [`FsError::Binary`] for what is no UTF-8, [`FsError::TooLarge`] above [`MAX_CONTENT`], [`FsError::NotFound`],
    /// [`FsError::IsDirectory`], [`FsError::NotDirectory`] when a part above it is a file, [`FsError::Escape`];
    /// [`FsError::Invalid`] for a pipe, socket or device, which is never opened.
    async fn read(&self, path: &str) -> Result<String>;

    /// A whole file, as it is at one moment.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for `Binary`.
    async fn read_bytes(&self, path: &str) -> Result<Vec<u8>>;

    /// Whether a path leads to anything. A link whose target is missing does not.
    ///
    /// # Errors
    /// [`FsError::Escape`]: what is outside is nobody's to know.
    async fn exists(&self, path: &str) -> Result<bool>;

    /// What a path leads to.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::Escape`].
    async fn stat(&self, path: &str) -> Result<FsEntry>;

    /// What is in a directory, by the bytes of the names.
    ///
    /// # Errors
    /// As [`stat`](Self::stat); [`FsError::NotDirectory`] for a file.
    async fn list(&self, path: &str) -> Result<Found<FsEntry>>;

    /// Regular files below a directory whose path from there matches, sorted. The patterns of the tool `glob`:
    /// directories named `.git` are entered only when path or pattern name them.
    ///
    /// # Errors
    /// As [`list`](Self::list); [`FsError::Invalid`] for a pattern that is none or has `..`.
    async fn glob(&self, path: &str, pattern: &str) -> Result<Found<FsEntry>>;

    /// Lines that match, in one file or all below a directory, sorted by path and number.
    ///
    /// # Errors
    /// As [`stat`](Self::stat); [`FsError::Invalid`] for a pattern that is none.
    async fn grep(&self, path: &str, lines: &Lines<'_>) -> Result<Found<LineMatch>>;

    /// Writes a text, as [`write_bytes`](Self::write_bytes).
    ///
    /// # Errors
    /// As [`write_bytes`](Self::write_bytes).
    async fn write(&self, path: &str, text: &str, how: Writing) -> Result<FsEntry>;

    /// Writes a file whole: whoever looks meanwhile sees the old bytes or the new. One that is there keeps its mode, and a
    /// link that leads inside is written through.
    ///
    /// # Errors
    /// [`FsError::Exists`] with [`WriteMode::Create`], [`FsError::NotFound`] for a missing parent that is not to be made,
    /// [`FsError::NotDirectory`], [`FsError::IsDirectory`], [`FsError::TooLarge`], [`FsError::Escape`],
    /// [`FsError::ReadOnly`], [`FsError::Denied`], [`FsError::Full`].
    async fn write_bytes(&self, path: &str, bytes: &[u8], how: Writing) -> Result<FsEntry>;

    /// Removes a file, a link (never what it leads to) or an empty directory; with `recursive` a directory with all that is
    /// in it.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotEmpty`], [`FsError::Escape`], [`FsError::ReadOnly`], [`FsError::Denied`];
    /// [`FsError::Invalid`] for the root.
    async fn delete(&self, path: &str, recursive: bool) -> Result<()>;

    /// Makes a directory, with `parents` those above it, too.
    ///
    /// # Errors
    /// [`FsError::Exists`] for a file, and without `exist_ok` for a directory; [`FsError::NotFound`] for a missing parent,
    /// [`FsError::NotDirectory`], [`FsError::Escape`], [`FsError::ReadOnly`], [`FsError::Denied`].
    async fn mkdir(&self, path: &str, parents: bool, exist_ok: bool) -> Result<()>;

    /// Keeps all files and links as they are now under a tag, and tells the id of what is kept, until [`forget`](Self::forget).
    ///
    /// Kept are names, bytes, link targets and whether a file can be executed; ignored files as all others. Directories
    /// named `.git`, empty directories, pipes, sockets and devices are not. It lies outside of the workspace, in the
    /// container, and goes with it. A tag has 1 to 64 letters, digits, `.`, `_` and `-`, begins with a letter or digit,
    /// has no `..` and does not end in `.` or `.lock`.
    ///
    /// # Errors
    /// [`FsError::Exists`] for a tag that is taken, [`FsError::Unsupported`] without a git in the image,
    /// [`FsError::Git`] when it fails: a file or directory that the user cannot read, one with a name that git keeps for
    /// itself (such as `.GIT`), no space.
    async fn snapshot(&self, tag: &str) -> Result<String>;

    /// Brings back exactly the files and links of a tag: what changed is as it was, what is gone is there, and what came
    /// later goes, ignored files and whole repositories with it. Left alone is what no snapshot keeps, in directories that
    /// this one knows: their `.git`, pipes, sockets and devices. A file that is as it was is not touched. Nothing goes before
    /// it is known that all is there which is to come. This is no single step: who looks meanwhile sees part of it, and what
    /// cannot be taken away makes it fail after the rest was done.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for an unknown tag, [`FsError::ReadOnly`], [`FsError::Unsupported`], [`FsError::Git`].
    async fn restore(&self, tag: &str) -> Result<()>;

    /// Lets go of a tag. What no other snapshot keeps is freed with it if it was written at least a quarter of an hour ago,
    /// else when another tag goes: a snapshot that is just being taken may need it.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for an unknown tag, [`FsError::ReadOnly`], [`FsError::Unsupported`], [`FsError::Git`].
    async fn forget(&self, tag: &str) -> Result<()>;
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsEntry {
    /// From the root, empty for the root itself; can be passed back, unless it is not `addressable`.
    pub path: String,
    /// What it is. A link that leads inside is what it leads to.
    pub kind: FsKind,
    /// Bytes; 0 for what is no file.
    pub size: u64,
    /// How often it was seen to change, from 1; 0 for what is no file.
    pub version: u64,
    /// When its content changed last.
    pub changed: Timestamp,
    /// What a link says that leads nowhere or outside.
    pub target: Option<String>,
    /// False for a name that is no UTF-8 or too long, below a depth that no path has.
    pub addressable: bool,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A link that leads nowhere or outside.
    Symlink,
    /// A pipe, socket or device.
    Other,
}

/// Results, and what is missing of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// Those that are told, in order.
    pub items: Vec<T>,
    /// How many more were met.
    pub omitted: u64,
    /// Everything was looked at; else there may be more.
    pub complete: bool,
}

/// Lines to look for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines<'a> {
    /// A regular expression in the syntax of Rust's `regex`, against each line.
    pub pattern: &'a str,
    /// Only files whose name, or with a slash whose path from there, matches.
    pub glob: Option<&'a str>,
    /// Letters match in either case.
    pub ignore_case: bool,
    /// Lines before and after each match, at most 5.
    pub context: u32,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineMatch {
    /// Of which file.
    pub path: String,
    /// Its number, from 1.
    pub number: u64,
    /// The line without its end, at most 2000 characters; what is no UTF-8 is U+FFFD.
    pub line: String,
    /// It was longer.
    pub is_cut: bool,
    /// Lines before.
    pub before: Vec<String>,
    /// Lines after.
    pub after: Vec<String>,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// What may be there.
    pub mode: WriteMode,
    /// Missing directories above it are made.
    pub create_parents: bool,
}

impl From<WriteMode> for Writing {
    /// With the directories above it.
    fn from(mode: WriteMode) -> Self {
        Self { mode, create_parents: true }
    }
}

/// What may be at a path that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Nothing.
    Create,
    /// Nothing, or a file, which is replaced.
    Overwrite,
    /// Nothing, or a file, which is added to.
    Append,
}

//! Unpacks an untrusted tar below a directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};
use std::time::{Duration, SystemTime};

use cap_fs_ext::{DirExt as _, SystemTimeSpec};
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _, Permissions, PermissionsExt as _};

use super::{Error, Limits, MAX_DEPTH, MAX_PATH, TransferReport, io_error, stays_inside};
use crate::tar::{EntryKind, FileSpan, ReadError, Reader, TarEntry};

/// Unpacks an engine's archive of one path into an empty directory, under the name `name`.
///
/// The archive comes from a container and is not trusted: names that are absolute, lead upwards, or are outside of the
/// path are skipped, links are created last and only if they lead inside, nothing is written through a link, and
/// devices, pipes and sockets are skipped.
///
/// # Errors
/// [`Error`] if a limit is reached, the archive is truncated, or a file cannot be written.
pub fn unpack(tar: File, into: &Dir, name: &str, limits: Limits) -> Result<TransferReport, Error> {
    Unpack::new(into, name, limits).run(tar)
}

/// Options of unpacking an archive.
#[derive(Debug)]
pub struct Unpack<'a> {
    into: &'a Dir,
    name: &'a str,
    /// Number of leading parts that are removed from each name.
    strip: usize,
    limits: Limits,
    /// Maps a path in the archive to one on the host.
    rename: fn(&str) -> String,
    moved: TransferReport,
    links: Vec<LinkEntry>,
    /// Their modes and times are set last, so that read-only ones can be filled.
    dirs: Vec<DirEntry>,
}

type ArchiveReader = Reader<io::BufReader<FileSpan>>;

#[derive(Debug)]
struct LinkEntry {
    path: String,
    target: String,
    mtime: SystemTime,
}

#[derive(Debug)]
struct DirEntry {
    path: String,
    mode: u32,
    mtime: SystemTime,
}

impl<'a> Unpack<'a> {
    /// Replaces the first part of each name by `name`, below `into`.
    #[must_use]
    pub fn new(into: &'a Dir, name: &'a str, limits: Limits) -> Self {
        let (moved, links, dirs) = Default::default();
        Self { into, name, strip: 1, limits, rename: str::to_owned, moved, links, dirs }
    }

    /// For an archive of a directory's content: its names are below `name` unchanged.
    #[must_use]
    pub fn beneath(self) -> Self {
        Self { strip: 0, ..self }
    }

    /// Maps each path in the tree with `rename`, to names without a meaning for programs on the host.
    #[must_use]
    pub fn renamed(self, rename: fn(&str) -> String) -> Self {
        Self { rename, ..self }
    }

    /// Unpacks the archive in a file, from its start.
    ///
    /// # Errors
    /// Those of [`unpack`].
    pub fn run(mut self, tar: File) -> Result<TransferReport, Error> {
        let mut tar = Reader::open(tar).map_err(io_error("the archive"))?;
        while let Some(entry) = tar.next_entry().map_err(unreadable)? {
            self.entry(&entry, &mut tar)?;
        }
        self.finish()
    }

    fn entry(&mut self, entry: &TarEntry, tar: &mut ArchiveReader) -> Result<(), Error> {
        let name = Path::new(OsStr::from_bytes(&entry.path));
        let Some(inner) = within(name, self.strip) else {
            self.moved.skip(&name.to_string_lossy(), "its name leaves the tree");
            return self.moved.count(&self.limits, 0);
        };
        let inner = (self.rename)(&inner);
        let path = if inner.is_empty() { self.name.to_owned() } else { format!("{}/{inner}", self.name) };
        match &entry.kind {
            EntryKind::Directory => self.dir(path, entry),
            EntryKind::File { size, .. } => {
                self.moved.files += 1;
                self.moved.count(&self.limits, *size)?;
                // Checked before a file is created, so that a truncated archive creates none.
                tar.content().map_err(unreadable)?;
                self.file(entry, &path, tar)
            }
            EntryKind::Symlink(target) => {
                // A target that is not UTF-8 does not stay inside.
                let target = str::from_utf8(target).unwrap_or_default().to_owned();
                self.remember_link(&inner, LinkEntry { path, target, mtime: mtime(entry) })
            }
            EntryKind::HardLink(target) => self.hard_link(&path, target),
            _ => {
                self.moved.skip(&inner, "it is neither a file nor a directory");
                self.moved.count(&self.limits, 0)
            }
        }
    }

    fn dir(&mut self, path: String, entry: &TarEntry) -> Result<(), Error> {
        self.into.create_dir_all(&path).map_err(io_error(&path))?;
        self.moved.dirs += 1;
        self.dirs.push(DirEntry { path, mode: entry.mode & 0o777, mtime: mtime(entry) });
        self.moved.count(&self.limits, 0)
    }

    fn file(&mut self, entry: &TarEntry, path: &str, tar: &mut ArchiveReader) -> Result<(), Error> {
        let mode = entry.mode & 0o777;
        self.make_parent(path)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let file = match self.into.open_with(path, &options) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
                self.moved.skip(path, "the archive names it twice");
                return Ok(());
            }
            other => other.map_err(io_error(path))?,
        };
        let file = file.into_std();
        tar.copy_content(entry, &file).map_err(io_error(path))?;
        // The mode at creation is restricted by the umask.
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode)).map_err(io_error(path))?;
        file.set_modified(mtime(entry)).map_err(io_error(path))
    }

    fn remember_link(&mut self, inner: &str, link: LinkEntry) -> Result<(), Error> {
        let parent = inner.rsplit_once('/').map_or("", |(parent, _)| parent);
        // The tree itself may be a link, which leads elsewhere by its nature.
        if !inner.is_empty() && link.target.len() <= MAX_PATH && stays_inside(parent, &link.target) {
            self.links.push(link);
            self.moved.files += 1;
        } else {
            self.moved.skip(if inner.is_empty() { self.name } else { inner }, "the link leads out of the tree");
        }
        self.moved.count(&self.limits, 0)
    }

    fn hard_link(&mut self, path: &str, target: &[u8]) -> Result<(), Error> {
        let source = within(Path::new(OsStr::from_bytes(target)), self.strip)
            .map(|inner| format!("{}/{}", self.name, (self.rename)(&inner)));
        self.make_parent(path)?;
        match source.map(|source| self.into.hard_link(&source, self.into, path)) {
            Some(Ok(())) => self.moved.files += 1,
            _ => self.moved.skip(path, "the hard link leads to something else"),
        }
        self.moved.count(&self.limits, 0)
    }

    fn make_parent(&self, path: &str) -> Result<(), Error> {
        let Some((parent, _)) = path.rsplit_once('/') else { return Ok(()) };
        self.into.create_dir_all(parent).map_err(io_error(path))
    }

    /// Creates links last, so that no entry is written through one, and a link may not lead through another.
    fn finish(mut self) -> Result<TransferReport, Error> {
        for LinkEntry { path, target, mtime } in std::mem::take(&mut self.links) {
            let parents = Path::new(&path).ancestors().skip(1).filter(|it| !it.as_os_str().is_empty());
            let through_link =
                parents.into_iter().any(|parent| self.into.symlink_metadata(parent).is_ok_and(|it| it.is_symlink()));
            self.make_parent(&path)?;
            if through_link || self.into.symlink_contents(&target, &path).is_err() {
                self.moved.files -= 1;
                self.moved.skip(&path, "the link cannot be placed");
            } else {
                let mtime = SystemTimeSpec::Absolute(cap_std::time::SystemTime::from_std(mtime));
                self.into.set_symlink_times(&path, None, Some(mtime)).map_err(io_error(&path))?;
            }
        }
        for DirEntry { path, mode, mtime } in self.dirs.iter().rev() {
            // Its owner can always list, fill and remove it: otherwise only root could move it.
            self.into.set_permissions(path, Permissions::from_mode(*mode | 0o700)).map_err(io_error(path))?;
            let mtime = SystemTimeSpec::Absolute(cap_std::time::SystemTime::from_std(*mtime));
            self.into.set_mtime(path, mtime).map_err(io_error(path))?;
        }
        Ok(self.moved)
    }
}

fn unreadable(err: ReadError) -> Error {
    io_error("the archive")(err.into())
}

/// Returns the time of an entry. Without a valid one, it is the current time.
fn mtime(entry: &TarEntry) -> SystemTime {
    let seconds = u64::try_from(entry.mtime.seconds).ok().filter(|seconds| *seconds > 0);
    let since = seconds.map(|seconds| Duration::new(seconds, entry.mtime.nanoseconds));
    since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)).unwrap_or_else(SystemTime::now)
}

/// Removes the first parts of a path, or returns `None` if it is not a plain relative path.
fn within(name: &Path, strip: usize) -> Option<String> {
    let parts = plain_parts(name)?;
    (parts.len() >= strip).then(|| parts[strip..].join("/"))
}

/// Normalises a name in an archive, or returns `None` if it is not a plain relative path: absolute, leading upwards,
/// too deep or long, or not UTF-8.
#[must_use]
pub fn plain_name(name: &Path) -> Option<String> {
    plain_parts(name).map(|it| it.join("/"))
}

fn plain_parts(name: &Path) -> Option<Vec<&str>> {
    if name.as_os_str().len() > MAX_PATH {
        return None;
    }
    let mut parts = Vec::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str().filter(|it| it.len() <= 255)?),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (parts.len() <= MAX_DEPTH).then_some(parts)
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};
    use std::os::unix::fs::{MetadataExt, symlink};

    use cap_std::ambient_authority;
    use coracle_types::Ids;
    use proptest::prelude::*;

    use super::*;
    use crate::transfer::Writer;

    const LIMITS: Limits = Limits { max_bytes: 1 << 20, max_entries: 1000 };

    /// Writes a raw entry: the writer of the tar crate refuses the names that matter here.
    fn raw(tar: &mut Vec<u8>, kind: ::tar::EntryType, path: &str, link: &str, data: &[u8]) {
        let mut header = ::tar::Header::new_gnu();
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..path.len()].copy_from_slice(path.as_bytes());
        gnu.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_mode(0o6755);
        header.set_cksum();
        tar.extend_from_slice(header.as_bytes());
        tar.extend_from_slice(data);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }

    fn unpacked(tar: &[u8]) -> (tempfile::TempDir, Result<TransferReport, Error>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(tar).unwrap();
        file.rewind().unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("into")).unwrap();
        let into = Dir::open_ambient_dir(dir.path().join("into"), ambient_authority()).unwrap();
        let moved = unpack(file, &into, "out", LIMITS);
        (dir, moved)
    }

    fn symlink_mtime(path: &Path) -> i64 {
        std::fs::symlink_metadata(path).unwrap().mtime()
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut left = vec![dir.to_owned()];
        while let Some(next) = left.pop() {
            for entry in std::fs::read_dir(&next).unwrap() {
                let entry = entry.unwrap();
                found.push(entry.path().strip_prefix(dir).unwrap().display().to_string());
                if entry.file_type().unwrap().is_dir() {
                    left.push(entry.path());
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn a_tree_is_restored_unchanged() {
        let from = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(from.path().join("a/b")).unwrap();
        std::fs::write(from.path().join("a/b/run.sh"), b"\0\xff bytes").unwrap();
        std::fs::set_permissions(from.path().join("a/b/run.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o4751))
            .unwrap();
        symlink("b/run.sh", from.path().join("a/link")).unwrap();
        symlink("/etc/passwd", from.path().join("a/out")).unwrap();
        std::os::unix::net::UnixListener::bind(from.path().join("a/socket")).unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for path in ["a/b/run.sh", "a/b", "a", ""] {
            File::open(from.path().join(path)).unwrap().set_modified(old).unwrap();
        }
        let link_time = symlink_mtime(&from.path().join("a/link"));
        let mut writer = Writer::new(tempfile::tempfile().unwrap(), Ids::ROOT, LIMITS);
        writer.host_dir("name", &Dir::open_ambient_dir(from.path(), ambient_authority()).unwrap()).unwrap();
        let (tar, sent) = writer.finish().unwrap();
        assert_eq!((sent.files, sent.dirs, sent.skipped.len()), (2, 3, 2), "{sent:?}");

        let dir = tempfile::tempdir().unwrap();
        let into = Dir::open_ambient_dir(dir.path(), ambient_authority()).unwrap();
        let got = unpack(tar, &into, "out", LIMITS).unwrap();
        assert_eq!((got.files, got.dirs, got.bytes), (2, 3, 8));
        let script = dir.path().join("out/a/b/run.sh");
        assert_eq!(std::fs::read(&script).unwrap(), b"\0\xff bytes");
        assert_eq!(script.metadata().unwrap().mode() & 0o7777, 0o751, "set-id bits are not transferred");
        assert_eq!(std::fs::read_link(dir.path().join("out/a/link")).unwrap(), Path::new("b/run.sh"));
        for path in ["out/a/b/run.sh", "out/a/b", "out/a", "out"] {
            assert_eq!(symlink_mtime(&dir.path().join(path)), 1_000_000_000, "{path}");
        }
        assert_eq!(symlink_mtime(&dir.path().join("out/a/link")), link_time);
    }

    #[test]
    fn a_growing_file_is_complete_or_missing() {
        let mut writer = Writer::new(tempfile::tempfile().unwrap(), Ids::ROOT, LIMITS);
        let long = format!("name/{}", "n".repeat(200));
        for (path, pieces) in [("name/a", vec!["one", "two"]), (&long, vec![]), ("name/b", vec!["x"])] {
            let mut growing = writer.begin(path, 0o4644, Some(7)).unwrap();
            pieces.iter().for_each(|it| growing.write(it.as_bytes()).unwrap());
            growing.end().unwrap();
            let mut given_up = writer.begin("name/never", 0o644, None).unwrap();
            given_up.write(&[0; 2000]).unwrap();
        }
        assert!(
            writer.link_within("name/l", "a", None).unwrap() && !writer.link_within("name/m", "../x", None).unwrap()
        );
        let mut growing = writer.begin("name/large", 0o644, None).unwrap();
        assert!(matches!(growing.write(&[0; 2 << 20]), Err(Error::TooLarge(_))));
        drop(growing);
        let (tar, sent) = writer.finish().unwrap();
        assert_eq!((sent.files, sent.bytes), (4, 7));
        let dir = tempfile::tempdir().unwrap();
        let into = Dir::open_ambient_dir(dir.path(), ambient_authority()).unwrap();
        assert_eq!(unpack(tar, &into, "out", LIMITS).unwrap().files, 4);
        let read = |name: &str| std::fs::read_to_string(dir.path().join("out").join(name)).unwrap();
        assert_eq!(
            (read("a"), read(&long[5..]), read("b"), read("l")),
            ("onetwo".into(), "".into(), "x".into(), "onetwo".into())
        );
        assert_eq!(names(dir.path()).len(), 5);
    }

    #[test]
    fn hostile_names_and_links_write_no_file_outside() {
        use ::tar::EntryType::{Block, Directory, Fifo, Link, Regular, Symlink};
        let mut tar = Vec::new();
        raw(&mut tar, Directory, "t", "", b"");
        raw(&mut tar, Regular, "/t/absolute", "", b"x");
        raw(&mut tar, Regular, "t/../../climbs", "", b"x");
        raw(&mut tar, Symlink, "t/out", "../..", b"");
        raw(&mut tar, Symlink, "t/in", ".", b"");
        raw(&mut tar, Regular, "t/out/through", "", b"x");
        raw(&mut tar, Symlink, "t/in/second", "x", b"");
        raw(&mut tar, Link, "t/hard", "/etc/passwd", b"");
        raw(&mut tar, Link, "t/hard2", "t/../../etc/passwd", b"");
        raw(&mut tar, Fifo, "t/fifo", "", b"");
        raw(&mut tar, Block, "t/disk", "", b"");
        raw(&mut tar, Regular, "t/fine", "", b"x");
        raw(&mut tar, Regular, "t/fine", "", b"y");
        let (dir, moved) = unpacked(&tar);
        let moved = moved.unwrap();
        assert_eq!(names(&dir.path().join("into")), ["out", "out/fine", "out/in", "out/out", "out/out/through"]);
        assert_eq!(names(dir.path()).len(), 6, "only `into` and what is in it");
        assert_eq!(std::fs::read(dir.path().join("into/out/fine")).unwrap(), b"x");
        assert_eq!(moved.skipped.len(), 9, "{:#?}", moved.skipped);
    }

    #[test]
    fn a_truncated_archive_and_too_many_bytes_are_errors() {
        let mut tar = Vec::new();
        raw(&mut tar, ::tar::EntryType::Regular, "t", "", &vec![0; 4096]);
        assert!(unpacked(&tar).1.is_ok());
        assert!(matches!(unpacked(&tar[..2000]).1, Err(Error::Io { .. })));
        let mut tar = Vec::new();
        (0..3).for_each(|at| raw(&mut tar, ::tar::EntryType::Regular, &format!("t/{at}"), "", &vec![0; 400_000]));
        assert!(matches!(unpacked(&tar).1, Err(Error::TooLarge(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn any_archive_stays_below_the_directory(
            entries in proptest::collection::vec((0u8..4, "[/.ab]{1,8}", "[/.ab]{0,8}"), 1..12),
        ) {
            let mut tar = Vec::new();
            for (kind, path, link) in entries {
                use ::tar::EntryType::{Directory, Link, Regular, Symlink};
                let kind = [Regular, Directory, Symlink, Link][usize::from(kind)];
                raw(&mut tar, kind, &path, &link, if kind == Regular { b"data" } else { b"" });
            }
            let (dir, _) = unpacked(&tar);
            let outside: Vec<_> = names(dir.path()).into_iter().filter(|it| it != "into" && !it.starts_with("into/out")).collect();
            prop_assert!(outside.is_empty(), "{:?}", outside);
        }
    }
}

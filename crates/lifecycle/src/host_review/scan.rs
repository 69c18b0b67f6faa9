//! Goes through a directory for what the host could act on.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use coracle_host::index::submodules;
use jiff::Timestamp;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::finding::{Change, Finding};
use super::limits::ScanLimits;

/// Directories open at once.
const DEPTH: usize = 128;

/// Findings of one kind that are reported, so that many of one kind hide no others.
const MOST_OF_A_KIND: usize = 50;

/// Kernels note times by a clock that lags a little.
const LAG_MS: i64 = 20;

const SET_ID: u32 = 0o6000;

/// Names in a git directory that decide which programs git runs and what it reads.
const DECIDES: [&str; 8] =
    ["config", "config.worktree", "commondir", "gitdir", "hooks", "attributes", "alternates", "git-rebase-todo"];

/// Directories that hold the data of other repositories and programs: their names at any depth are tried.
const REPOSITORY_DIRS: [&str; 3] = [".git", ".jj", ".hg"];

/// A repository without `.git`: git recognises a directory with these entries as one.
const BARE: [&CStr; 3] = [c"HEAD", c"objects", c"refs"];

/// What changed there since then, and whether not all was seen.
pub(super) fn walk(root: &Path, since: Timestamp, bounds: &mut ScanLimits) -> (Vec<Finding>, bool) {
    let Some(mut scan) = Scan::new(root, since) else { return (Vec::new(), true) };
    let Some(dir) = open(CWD, root.as_os_str()) else { return (Vec::new(), true) };
    scan.go(dir, PathBuf::new(), bounds);
    scan.found()
}

/// The same of the git directory alone, without its objects.
pub(super) fn walk_git(root: &Path, since: Timestamp, bounds: &mut ScanLimits) -> (Vec<Finding>, bool) {
    let Some(mut scan) = Scan::new(root, since) else { return (Vec::new(), true) };
    let Some(dir) = open(scan.beneath.as_fd(), OsStr::new(".git")) else { return (Vec::new(), false) };
    scan.passed_over = Some(Path::new(".git/objects"));
    scan.go(dir, PathBuf::from(".git"), bounds);
    scan.found()
}

fn open(from: BorrowedFd<'_>, name: &OsStr) -> Option<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Dir::new(openat(from, name, flags, Mode::empty()).ok()?).ok()
}

struct Scan<'a> {
    root: &'a Path,
    /// The same, open.
    beneath: OwnedFd,
    since_ms: i64,
    /// The directory is root's, and so is what is in it.
    roots: bool,
    /// A directory that is not entered.
    passed_over: Option<&'static Path>,
    found: BTreeMap<Change, Vec<Finding>>,
    cut: bool,
}

impl<'a> Scan<'a> {
    fn new(root: &'a Path, since: Timestamp) -> Option<Self> {
        let dir = open(CWD, root.as_os_str())?;
        let owner = dir.fd().and_then(fstat).ok()?;
        Some(Self {
            root,
            beneath: dir.fd().ok()?.try_clone_to_owned().ok()?,
            since_ms: since.as_millisecond() - LAG_MS,
            roots: owner.st_uid == 0,
            passed_over: None,
            found: BTreeMap::new(),
            cut: false,
        })
    }

    fn found(self) -> (Vec<Finding>, bool) {
        (self.found.into_values().flatten().collect(), self.cut)
    }

    fn go(&mut self, root: Dir, at: PathBuf, bounds: &mut ScanLimits) {
        let mut levels = vec![(root, at)];
        loop {
            let room = levels.len() < DEPTH;
            let Some((dir, at)) = levels.last_mut() else { return };
            let entry = match dir.read() {
                Some(Ok(entry)) => entry,
                Some(Err(_)) | None => {
                    levels.pop();
                    continue;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if !bounds.entry() {
                self.cut = true;
                return;
            }
            let path = at.join(OsStr::from_bytes(name.to_bytes()));
            let Ok(fd) = dir.fd() else { continue };
            let Ok(seen) = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if self.is_new(&seen) {
                self.inspect(fd, name, &path, &seen);
            }
            // What was a submodule before is one that code inside could change.
            if path == Path::new(".git/index") && FileType::from_raw_mode(seen.st_mode) == FileType::RegularFile {
                self.submodules(fd, name);
            }
            let is_passed = self.passed_over.is_some_and(|passed| passed == path);
            if FileType::from_raw_mode(seen.st_mode) == FileType::Directory && !is_passed {
                match room.then(|| open(fd, OsStr::from_bytes(name.to_bytes()))).flatten() {
                    Some(below) => levels.push((below, path)),
                    None => self.cut = true,
                }
            }
        }
    }

    fn is_new(&self, seen: &Stat) -> bool {
        let changed_ms = i128::from(seen.st_ctime) * 1000 + i128::from(seen.st_ctime_nsec / 1_000_000);
        changed_ms >= i128::from(self.since_ms)
    }

    fn inspect(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &Path, seen: &Stat) {
        let kind = FileType::from_raw_mode(seen.st_mode);
        let change = match kind {
            FileType::BlockDevice | FileType::CharacterDevice => Some(Change::Device),
            FileType::Fifo => Some(Change::Fifo),
            FileType::Socket => Some(Change::Socket),
            FileType::Symlink => {
                let target = readlinkat(dir, name, Vec::new());
                let out = target.is_ok_and(|target| {
                    let target = Path::new(OsStr::from_bytes(target.to_bytes()));
                    self.leads_out(path, target) && !(leads_to_python(path, target) && is_of_venv(dir))
                });
                out.then_some(Change::Link)
            }
            _ => None,
        };
        self.add(path, change);
        // That of the directory itself is compared with what it was.
        let named = match name.to_bytes() {
            b".git" | b".jj" | b".hg" if path.components().count() > 1 => Some(Change::Repository),
            b".gitattributes" => Some(Change::Gitattributes),
            b".gitmodules" => Some(Change::Gitmodules),
            _ => None,
        };
        self.add(path, named);
        if let Some(repository) = decided_by(path) {
            self.add(repository, Some(Change::Repository));
        }
        if let Some(worktree) = worktree_of(path).filter(|_| decides_elsewhere(dir, name)) {
            self.add(worktree, Some(Change::Repository));
        }
        if may_be_bare(path) && BARE.iter().all(|it| statat(dir, *it, AtFlags::SYMLINK_NOFOLLOW).is_ok()) {
            self.add(path.parent().unwrap_or(path), Some(Change::Repository));
        }
        let set_id = kind == FileType::RegularFile && seen.st_uid == 0 && seen.st_mode & SET_ID != 0;
        self.add(path, set_id.then_some(Change::Setuid));
        self.add(path, (seen.st_uid == 0 && !self.roots).then_some(Change::Root));
    }

    fn submodules(&mut self, dir: BorrowedFd<'_>, name: &CStr) {
        match open_file(dir, name).and_then(|it| submodules(it, MOST_OF_A_KIND)) {
            Some((found, more)) => {
                self.cut |= more;
                found.iter().for_each(|it| self.add(it, Some(Change::Submodule)));
            }
            None => self.cut = true,
        }
    }

    /// Whether a link leads out of the directory, by its words or by what it leads over.
    fn leads_out(&self, path: &Path, target: &Path) -> bool {
        if may_lead_out(path, target) {
            return true;
        }
        resolves_outside(&self.beneath, path)
    }

    fn add(&mut self, path: &Path, change: Option<Change>) {
        let Some(change) = change else { return };
        let finding = Finding { path: self.root.join(path), change };
        let of_kind = self.found.entry(change).or_default();
        if of_kind.contains(&finding) {
            return;
        }
        if of_kind.len() < MOST_OF_A_KIND {
            of_kind.push(finding);
        } else {
            self.cut = true;
        }
    }
}

/// Whether the kernel refuses to resolve a path beneath a directory. Where it cannot tell, the text of the link decides.
#[cfg(target_os = "linux")]
fn resolves_outside(dir: &OwnedFd, path: &Path) -> bool {
    use rustix::fs::{ResolveFlags, openat2};
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(dir, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), within) {
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NOSYS | Errno::PERM) => false,
        Err(_) => true,
    }
}

#[cfg(not(target_os = "linux"))]
fn resolves_outside(_: &OwnedFd, _: &Path) -> bool {
    false
}

/// Whether a link is named like the interpreter of a virtual environment and leads to an installed one.
fn leads_to_python(path: &Path, target: &Path) -> bool {
    let is_python = |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"));
    let is_in_bin = path.parent().is_some_and(|dir| dir.ends_with("bin"));
    let is_plain = target.is_absolute() && !target.components().any(|part| part == Component::ParentDir);
    let is_installed = ["/usr/bin", "/usr/local/bin", "/bin"].iter().any(|dir| target.parent() == Some(Path::new(dir)));
    // Another link, which is checked separately.
    let is_beside = target.components().count() == 1;
    is_in_bin && is_python(path) && is_python(target) && (is_beside || is_plain && is_installed)
}

/// Whether `bin` is the directory of a virtual environment.
fn is_of_venv(bin: BorrowedFd<'_>) -> bool {
    statat(bin, c"../pyvenv.cfg", AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Whether a link at that path of a directory can lead out of it. A link that goes up after a name counts, because its
/// target depends on what that name is at present.
fn may_lead_out(path: &Path, target: &Path) -> bool {
    let mut above = path.components().count().saturating_sub(1);
    let mut named = false;
    for part in target.components() {
        match part {
            Component::RootDir | Component::Prefix(_) => return true,
            Component::ParentDir if named || above == 0 => return true,
            Component::ParentDir => above -= 1,
            Component::Normal(_) => named = true,
            Component::CurDir => {}
        }
    }
    false
}

/// The repository in the repository that runs other programs when that path changed.
fn decided_by(path: &Path) -> Option<&Path> {
    let is_repository = |it: &&Path| it.file_name().is_some_and(|name| REPOSITORY_DIRS.iter().any(|dir| name == *dir));
    let repository = path.ancestors().find(is_repository)?;
    let inside = path.strip_prefix(repository).ok()?;
    let decides = match repository.file_name()?.as_bytes() {
        b".git" => decides_in_git(inside),
        b".hg" => inside.file_name().is_some_and(|name| name != "dirstate") && inside.components().count() == 1,
        _ => inside.extension().is_some_and(|it| it == "toml") || inside.ends_with("git_target"),
    };
    (decides && repository.components().count() > 1).then_some(repository)
}

/// Whether a path in a git directory decides something: also in one of a submodule or a worktree.
fn decides_in_git(path: &Path) -> bool {
    let mut parts = path.components().map(std::path::Component::as_os_str);
    let is_decisive = |part: &OsStr| DECIDES.iter().any(|it| part == *it);
    match parts.next() {
        Some(first) if first == "modules" || first == "worktrees" || first == "info" => parts.any(is_decisive),
        Some(first) if first == "objects" => path.ends_with("info/alternates"),
        Some(first) => is_decisive(first) || first == "rebase-merge",
        None => false,
    }
}

/// The worktree that a file in the directory's own git directory decides about.
fn worktree_of(path: &Path) -> Option<&Path> {
    let worktree = path.parent()?;
    (worktree.parent()? == Path::new(".git/worktrees")).then_some(worktree)
}

/// Whether a file of a worktree makes git read another configuration than the repository's.
fn decides_elsewhere(dir: BorrowedFd<'_>, name: &CStr) -> bool {
    let mut text = String::new();
    let read = |text: &mut String| open_file(dir, name)?.take(64).read_to_string(text).ok();
    match name.to_bytes() {
        b"commondir" => read(&mut text).is_none() || text.trim_end() != "../..",
        b"config.worktree" => read(&mut text) != Some(0),
        _ => false,
    }
}

/// Whether an entry can make its directory a repository without `.git`.
fn may_be_bare(path: &Path) -> bool {
    let is_named =
        |name: &OsStr| ["HEAD", "objects", "refs"].iter().any(|it| name == *it) || decides_in_git(name.as_ref());
    path.file_name().is_some_and(is_named) && !path.components().any(|it| it.as_os_str() == ".git")
}

/// For who looks at a file of the tree.
pub(super) fn open_file(dir: impl AsFd, name: &CStr) -> Option<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Some(openat(dir, name, flags, Mode::empty()).ok()?.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn found(root: &Path, since: Timestamp) -> Vec<(String, Change)> {
        let (mut found, cut) = walk(root, since, &mut ScanLimits::new());
        assert!(!cut);
        found.sort();
        found.into_iter().map(|it| (it.path.strip_prefix(root).unwrap().display().to_string(), it.change)).collect()
    }

    #[test]
    fn what_the_host_could_act_on_is_found_when_it_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("sub/.git/objects")).unwrap();
        fs::write(root.join("sub/.gitattributes"), "").unwrap();
        fs::write(root.join(".gitmodules"), "").unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        for (name, target) in [("in", "sub/x"), ("out", "sub/../../x"), ("abs", "/etc"), ("sub/in", "../x")] {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        }
        rustix::fs::mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("sock")).unwrap();
        let expected = [
            (".gitmodules", Change::Gitmodules),
            ("abs", Change::Link),
            ("out", Change::Link),
            ("pipe", Change::Fifo),
            ("sock", Change::Socket),
            ("sub/.git", Change::Repository),
            ("sub/.gitattributes", Change::Gitattributes),
        ];
        assert_eq!(found(root, Timestamp::UNIX_EPOCH), expected.map(|(path, change)| (path.to_owned(), change)));
        assert_eq!(found(root, Timestamp::MAX), []);
    }

    #[test]
    fn the_search_is_bounded_and_many_findings_of_one_kind_hide_no_other() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..60 {
            std::os::unix::fs::symlink("/", dir.path().join(format!("l{n}"))).unwrap();
        }
        rustix::fs::mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let (found, cut) = walk(dir.path(), Timestamp::UNIX_EPOCH, &mut ScanLimits::new());
        assert!(cut && found.len() == MOST_OF_A_KIND + 1, "{}", found.len());
        let mut bounds = ScanLimits { entries: 3, ..ScanLimits::new() };
        assert!(walk(dir.path(), Timestamp::UNIX_EPOCH, &mut bounds).1);
    }

    #[test]
    fn a_link_over_other_links_is_reported_if_it_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        let links = [
            ("own", "/opt"),
            ("d", "."),
            ("loop", "loop"),
            ("dangling", "a/none"),
            ("over", "d/d/d/../../../etc/passwd"),
            ("later", "a/b/c/../../.."),
            ("through", "own/file"),
            ("a/b/fine", "../../d/a"),
        ];
        for (name, target) in links {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        }
        // `own` may be older than the container and belong to the user: a path through it does not.
        let reported: Vec<_> = found(&root, Timestamp::UNIX_EPOCH).into_iter().map(|it| it.0).collect();
        assert_eq!(reported, ["later", "over", "own", "through"]);
    }

    #[test]
    fn the_interpreter_of_a_virtual_environment_is_no_finding() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join(".venv/bin")).unwrap();
        fs::create_dir_all(root.join("tools/bin")).unwrap();
        fs::write(root.join(".venv/pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        for (name, target) in [
            (".venv/bin/python", "/usr/bin/python3"),
            (".venv/bin/python3", "python"),
            (".venv/bin/python3.12", "/usr/local/bin/python3.12"),
            (".venv/lib64", "lib"),
            (".venv/bin/pip", "/usr/bin/python3"),
            (".venv/bin/python4", "/usr/bin/../../etc/python"),
            (".venv/bin/python5", "/home/kim/python"),
            ("tools/bin/python", "/usr/bin/python3"),
        ] {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        }
        let reported: Vec<_> = found(root, Timestamp::UNIX_EPOCH).into_iter().map(|it| it.0).collect();
        assert_eq!(reported, [".venv/bin/pip", ".venv/bin/python4", ".venv/bin/python5", "tools/bin/python"]);
    }

    #[test]
    fn a_nested_repository_is_reported_if_only_its_configuration_changed() {
        for (path, repository) in [
            ("sub/.git/config", Some("sub/.git")),
            ("sub/.git/hooks/pre-commit", Some("sub/.git")),
            ("a/b/.git/commondir", Some("a/b/.git")),
            ("sub/.git/objects/config", None),
            ("sub/.git", None),
            ("sub/config", None),
            // Those of the directory itself are protected.
            (".git/config", None),
        ] {
            assert_eq!(decided_by(Path::new(path)), repository.map(Path::new), "{path}");
        }
        let dir = tempfile::tempdir().unwrap();
        let (root, git) = (dir.path(), dir.path().join("sub/.git"));
        fs::create_dir_all(git.join("objects")).unwrap();
        fs::write(git.join("config"), "old").unwrap();
        let ctime_ms = |path: &Path| {
            use std::os::unix::fs::MetadataExt as _;
            let it = fs::metadata(path).unwrap();
            it.ctime() * 1000 + it.ctime_nsec() / 1_000_000
        };
        // Written until its time is another one than that of the directory above it.
        while ctime_ms(&git.join("config")) <= ctime_ms(&git) {
            fs::write(git.join("config"), "new").unwrap();
        }
        let since = Timestamp::from_millisecond(ctime_ms(&git.join("config")) + LAG_MS).unwrap();
        assert_eq!(found(root, since), [("sub/.git".to_owned(), Change::Repository)]);
    }

    #[test]
    fn an_old_index_is_read_for_submodules() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".git")).unwrap();
        // One entry of git's version 2, with its mode and name alone.
        let mut entry = [0; 72];
        entry[24..28].copy_from_slice(&0o160_000_u32.to_be_bytes());
        entry[62..65].copy_from_slice(b"sub");
        let bytes = [b"DIRC", &2_u32.to_be_bytes(), &1_u32.to_be_bytes(), &entry[..]].concat();
        fs::write(dir.path().join(".git/index"), bytes).unwrap();
        assert_eq!(found(dir.path(), Timestamp::MAX), [("sub".to_owned(), Change::Submodule)]);
        fs::write(dir.path().join(".git/index"), "DIRC").unwrap();
        assert!(walk(dir.path(), Timestamp::MAX, &mut ScanLimits::new()).1, "it is reported as not read");
    }
}

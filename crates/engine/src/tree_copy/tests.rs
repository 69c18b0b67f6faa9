//! Trees that are copied, at rest and while they change.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use coracle_skips::{NEEDS_ROOT, skip};
use rustix::fs::{FileType, Mode, XattrFlags, lsetxattr, mknodat};

use super::{CopyPass, CopyRequest, CopyState, copy_tree};
use crate::write_guard::full_file_system;

/// A tree, and an empty directory for its copy.
struct Trees {
    dir: tempfile::TempDir,
}

impl Trees {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("from")).unwrap();
        fs::create_dir(dir.path().join("to")).unwrap();
        Self { dir }
    }

    fn from(&self, path: &str) -> PathBuf {
        self.dir.path().join("from").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.from(path).parent().unwrap()).unwrap();
        fs::write(self.from(path), text).unwrap();
    }

    fn pass(&self, pass: CopyPass, before: CopyState) -> CopyState {
        let to = self.dir.path().join("to");
        copy_tree(&CopyRequest { from: &self.from(""), to: &to, left_out: &["/proc"] }, pass, before).unwrap()
    }

    /// What was written until now counts as unchanged afterwards.
    fn settle(&self) {
        let file = self.from("settled");
        let begun = SystemTime::now();
        while begun.elapsed().unwrap_or_default() < Duration::from_millis(60) {
            fs::write(&file, "x").unwrap();
        }
        fs::remove_file(file).unwrap();
    }

    fn assert_same(&self, what: &str) {
        let (copy, tree) = (listing(&self.dir.path().join("to")), listing(&self.from("")));
        let lines = |it: &[(String, Vec<u8>)]| it.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
        assert_eq!(lines(&copy), lines(&tree), "{what}");
        assert!(copy == tree, "{what}: another content");
    }
}

/// Everything of a tree that a program can see, one line for each name, and its content; files with several names by the
/// first one.
pub(crate) fn listing(root: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut lines, mut pending) = (Vec::new(), vec![root.to_owned()]);
    let mut first_names = std::collections::HashMap::new();
    while let Some(path) = pending.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let content = match (found.is_file(), found.is_symlink()) {
            (true, _) => fs::read(&path).unwrap(),
            (_, true) => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            _ => Vec::new(),
        };
        let same_as =
            first_names.entry((!found.is_dir()).then_some(found.ino())).or_insert_with(|| name.clone()).clone();
        let mut names = [0; 4096];
        let length = rustix::fs::llistxattr(&path, &mut names).unwrap();
        let attributes = String::from_utf8_lossy(&names[..length]).into_owned();
        let line = format!(
            "{name}|{:o}|{}:{}|{}.{}|{}|{}|{attributes}",
            found.mode(),
            found.uid(),
            found.gid(),
            found.mtime(),
            found.mtime_nsec(),
            if found.is_dir() { String::new() } else { format!("{} {same_as}", found.nlink()) },
            found.rdev(),
        );
        lines.push((line, content));
        if found.is_dir() {
            let mut inner: Vec<_> = fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()).collect();
            inner.sort();
            pending.extend(inner.into_iter().rev());
        }
    }
    lines
}

/// Every kind of entry.
fn example(trees: &Trees) {
    trees.write("a/text", "text");
    trees.write("a/b/program", "program");
    fs::set_permissions(trees.from("a/b/program"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(trees.from("a/text"), trees.from("a/b/other-name")).unwrap();
    symlink("../nowhere", trees.from("a/link")).unwrap();
    trees.write("large", &"large".repeat(50_000));
    let sparse = File::create(trees.from("sparse")).unwrap();
    sparse.write_all_at(b"middle", 5 << 16).unwrap();
    sparse.set_len(9 << 16).unwrap();
    fs::create_dir(trees.from("empty")).unwrap();
    fs::set_permissions(trees.from("empty"), fs::Permissions::from_mode(0o1777)).unwrap();
    lsetxattr(trees.from("a/text"), "user.note", b"kept", XattrFlags::empty()).unwrap();
    mknodat(rustix::fs::CWD, trees.from("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    if rustix::process::geteuid().is_root() {
        mknodat(rustix::fs::CWD, trees.from("whiteout"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        lsetxattr(trees.from("a/b"), "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        std::os::unix::fs::chown(trees.from("a/b/program"), Some(1000), Some(1001)).unwrap();
        fs::set_permissions(trees.from("a/b/program"), fs::Permissions::from_mode(0o4755)).unwrap();
    }
}

#[test]
fn a_copy_is_the_same_to_the_last_attribute() {
    let trees = Trees::new();
    example(&trees);
    trees.pass(CopyPass::Still, CopyState::default());
    trees.assert_same("at rest");
    let copied = fs::metadata(trees.dir.path().join("to/sparse")).unwrap();
    assert!(copied.blocks() * 512 < 1 << 16, "{} blocks of a file with holes", copied.blocks());
}

#[test]
fn what_is_left_out_is_left_out_with_all_that_it_holds() {
    let trees = Trees::new();
    trees.write("proc/1/text", "x");
    trees.write("a/proc", "stays");
    trees.pass(CopyPass::Still, CopyState::default());
    let to = trees.dir.path().join("to");
    assert!(!to.join("proc").exists() && to.join("a/proc").exists());
}

type Change<'a> = &'a dyn Fn(&Trees);

#[test]
fn every_kind_of_change_between_the_passes_is_in_the_copy() {
    let changes: [(&str, Change<'_>); 14] = [
        ("nothing", &|_| {}),
        ("another content of the same length", &|it| fs::write(it.from("a/text"), "TEXT").unwrap()),
        ("the old time of change of content", &|it| {
            let then = fs::metadata(it.from("large")).unwrap().modified().unwrap();
            let file = File::options().write(true).open(it.from("large")).unwrap();
            file.write_all_at(b"LARGE", 100_000).unwrap();
            file.set_modified(then).unwrap();
        }),
        ("a new file", &|it| it.write("a/b/new", "new")),
        ("a removed file", &|it| fs::remove_file(it.from("a/b/program")).unwrap()),
        ("a removed directory", &|it| fs::remove_dir_all(it.from("a")).unwrap()),
        ("a moved directory", &|it| fs::rename(it.from("a"), it.from("moved")).unwrap()),
        ("a directory in place of a file", &|it| {
            fs::remove_file(it.from("large")).unwrap();
            it.write("large/inner", "x");
        }),
        ("a file in place of a directory", &|it| {
            fs::remove_dir_all(it.from("a/b")).unwrap();
            it.write("a/b", "file");
        }),
        ("another directory of the same name", &|it| {
            fs::remove_dir_all(it.from("a/b")).unwrap();
            it.write("a/b/program", "other");
        }),
        ("one more name", &|it| fs::hard_link(it.from("a/text"), it.from("third")).unwrap()),
        ("a second name of a file with one", &|it| fs::hard_link(it.from("large"), it.from("second")).unwrap()),
        ("one name less", &|it| fs::remove_file(it.from("a/b/other-name")).unwrap()),
        ("another mode and attribute", &|it| {
            fs::set_permissions(it.from("empty"), fs::Permissions::from_mode(0o700)).unwrap();
            rustix::fs::lremovexattr(it.from("a/text"), "user.note").unwrap();
        }),
    ];
    for (what, change) in changes {
        for settles in [true, false] {
            let trees = Trees::new();
            example(&trees);
            if settles {
                trees.settle();
            }
            let before = trees.pass(CopyPass::Running, CopyState::default());
            change(&trees);
            trees.pass(CopyPass::Still, before);
            trees.assert_same(&format!("{what}; settled before: {settles}"));
        }
    }
}

#[test]
fn what_did_not_change_is_not_copied_again() {
    let trees = Trees::new();
    example(&trees);
    trees.settle();
    let before = trees.pass(CopyPass::Running, CopyState::default());
    let inode = |path: &str| fs::metadata(trees.dir.path().join("to").join(path)).unwrap().ino();
    let (large, text) = (inode("large"), inode("a/text"));
    fs::write(trees.from("a/text"), "TEXT").unwrap();
    trees.pass(CopyPass::Still, before);
    assert!(inode("large") == large && inode("a/text") != text);
}

#[test]
fn a_tree_that_changes_all_the_time_is_copied_as_it_is_in_the_end() {
    let trees = Trees::new();
    example(&trees);
    let busy = std::sync::atomic::AtomicBool::new(true);
    let before = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0.. {
                let dir = format!("d{}", round % 7);
                trees.write(&format!("{dir}/{}", round % 11), &format!("{round}"));
                let _ = fs::rename(trees.from(&dir), trees.from(&format!("moved{}", round % 3)));
                let _ = fs::remove_dir_all(trees.from(&format!("moved{}", round % 5)));
                let _ = fs::hard_link(trees.from("large"), trees.from(&format!("name{}", round % 4)));
                let _ = fs::remove_file(trees.from(&format!("name{}", (round + 2) % 4)));
                if !busy.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        let before = trees.pass(CopyPass::Running, CopyState::default());
        busy.store(false, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
        before
    });
    trees.pass(CopyPass::Still, before);
    trees.assert_same("after many changes");
}

#[test]
fn a_full_disk_ends_the_first_pass_too() {
    let Some(full) = full_file_system() else { return skip(NEEDS_ROOT) };
    let trees = Trees::new();
    for name in ["a", "b", "c", "d"] {
        trees.write(name, &"x".repeat(60_000));
    }
    let to = PathBuf::from(format!("/proc/self/fd/{}", full.as_raw_fd()));
    let request = CopyRequest { from: &trees.from(""), to: &to, left_out: &[] };
    let copied = copy_tree(&request, CopyPass::Running, CopyState::default());
    assert_eq!(copied.map(drop).map_err(|it| it.kind()), Err(std::io::ErrorKind::StorageFull));
}

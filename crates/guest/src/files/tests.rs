mod hostile;
mod names;

use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::{getegid, geteuid, getgroups};
use tempfile::TempDir;

use super::*;
use crate::protocol::{FileKind, UserSpec};

/// A root with the files of the tables below, and a directory outside that must never change.
struct World {
    dir: TempDir,
    files: Files,
    ids: Ids,
}

fn me() -> Ids {
    let groups = getgroups().unwrap().into_iter().map(rustix::fs::Gid::as_raw).collect();
    Ids { uid: geteuid().as_raw(), gid: getegid().as_raw(), groups }
}

fn at(path: &str) -> FileRef {
    FileRef { user: UserSpec::Ids { uid: 0, gid: None }, path: path.to_owned(), follow: true }
}

fn options(mode: Option<u32>, parents: bool, replace: bool) -> WriteOptions {
    WriteOptions { mode, exact: false, parents, replace }
}

fn no_follow(path: &str) -> FileRef {
    FileRef { follow: false, ..at(path) }
}

fn world() -> World {
    world_in(tempfile::tempdir().unwrap())
}

fn world_in(dir: TempDir) -> World {
    let root = dir.path().join("root");
    for it in ["root/d/sub", "root/proc", "root/sys/x", "root/.coracle/run", "outside"] {
        fs::create_dir_all(dir.path().join(it)).unwrap();
    }
    for it in ["root/f", "root/d/sub/deep", "root/proc/f", "root/.coracle/run/key", "outside/f"] {
        fs::write(dir.path().join(it), it).unwrap();
    }
    for (link, target) in [
        ("to-f", "f"),
        ("to-d", "d"),
        ("d/up", "../f"),
        ("absolute", "/f"),
        ("out", "../../outside"),
        ("out-f", "../outside/f"),
        ("dangling", "d/not-yet"),
        ("loop", "loop"),
        ("to-run", "/.coracle/run"),
        ("to-key", "d/../.coracle/run/key"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    symlink(dir.path().join("outside/f"), root.join("out-absolute")).unwrap();
    mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let files = Files::open(&root).unwrap();
    World { dir, files, ids: me() }
}

impl World {
    fn path(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join("root").join(path.trim_start_matches('/'))
    }

    fn content(&self, at: &FileRef) -> Result<String, ErrorCode> {
        let (_, mut file) = self.files.get(&self.ids, at, 0).map_err(|it| it.code)?;
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    fn put(&self, at: &FileRef, replace: bool) -> Result<FileEntry, ErrorCode> {
        let put = || {
            let mut writing = self.files.put(&self.ids, at, options(None, false, replace))?;
            writing.write(b"n")?;
            writing.write(b"ew")?;
            writing.commit()
        };
        put().map_err(|it| it.code)
    }

    fn temporaries(&self) -> usize {
        let names = |dir: &str| fs::read_dir(self.path(dir)).unwrap().map(|it| it.unwrap().file_name());
        let is_temporary = |name: &std::ffi::OsString| name.as_bytes().starts_with(b".coracle-");
        ["", "d", "d/sub"].into_iter().flat_map(names).filter(is_temporary).count()
    }
}

#[test]
fn a_file_is_read_through_links_beneath_the_root() {
    let w = world();
    use ErrorCode::{Denied, Invalid, NotFound, WrongKind};
    for (path, expected) in [
        ("/f", Ok("root/f")),
        ("//d/../f", Ok("root/f")),
        ("/../../f", Ok("root/f")),
        ("/to-f", Ok("root/f")),
        ("/d/up", Ok("root/f")),
        ("/absolute", Ok("root/f")),
        ("/to-d/sub/deep", Ok("root/d/sub/deep")),
        ("/out/f", Err(NotFound)),
        ("/out-f", Err(NotFound)),
        ("/out-absolute", Err(NotFound)),
        ("/gone", Err(NotFound)),
        ("/f/below", Err(NotFound)),
        ("/dangling", Err(NotFound)),
        ("/loop", Err(WrongKind)),
        ("/d", Err(WrongKind)),
        ("/", Err(WrongKind)),
        ("/pipe", Err(WrongKind)),
        ("f", Err(Invalid)),
        ("", Err(Invalid)),
        ("/f\0", Err(Invalid)),
        ("/proc/f", Err(Denied)),
        ("/d/../proc/f", Err(Denied)),
        ("/.coracle/run/key", Err(Denied)),
        ("/to-run/key", Err(Denied)),
        ("/to-key", Err(Denied)),
    ] {
        assert_eq!(w.content(&at(path)), expected.map(str::to_owned), "{path}");
    }
    assert_eq!(w.content(&no_follow("/to-f")), Err(WrongKind));
    assert_eq!(w.content(&at(&format!("/{}", "x/".repeat(3000)))), Err(Invalid));
}

#[test]
fn reading_starts_at_the_offset() {
    let w = world();
    for (offset, expected) in [(0, "root/f"), (5, "f"), (6, ""), (1000, "")] {
        let (entry, mut file) = w.files.get(&w.ids, &at("/f"), offset).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((entry.size, text.as_str()), (6, expected), "{offset}");
    }
    assert_eq!(w.files.get(&w.ids, &at("/f"), u64::MAX).unwrap_err().code, ErrorCode::Invalid);
}

#[test]
fn stat_describes_an_entry() {
    let w = world();
    fs::set_permissions(w.path("f"), fs::Permissions::from_mode(0o640)).unwrap();
    let stat =
        |at: &FileRef| w.files.stat(&w.ids, at).map(|it| (it.name, it.kind, it.size, it.link)).map_err(|it| it.code);
    let f = |name: &str| Ok((name.to_owned(), FileKind::File, 6, None));
    assert_eq!(stat(&at("/f")), f("f"));
    assert_eq!(stat(&at("/to-f")), f("to-f"));
    assert_eq!(stat(&no_follow("/to-f")), Ok(("to-f".to_owned(), FileKind::Link, 1, Some("f".to_owned()))));
    assert_eq!(stat(&no_follow("/pipe")), Ok(("pipe".to_owned(), FileKind::Special, 0, None)));
    assert_eq!(stat(&at("/")).unwrap().0, "/");
    for hidden in ["/proc", "/sys/x", "/.coracle", "/to-run", "/.coracle/absent/../run"] {
        assert!(matches!(stat(&at(hidden)), Err(ErrorCode::Denied | ErrorCode::NotFound)), "{hidden}");
    }
    let (entry, file) = (w.files.stat(&w.ids, &at("/f")).unwrap(), fs::metadata(w.path("f")).unwrap());
    assert_eq!((entry.mode, entry.uid, entry.gid), (0o640, file.uid(), file.gid()));
    assert_eq!(entry.changed_ns, file.mtime() * 1_000_000_000 + file.mtime_nsec());
}

#[test]
fn procfs_and_sysfs_are_not_accessible_by_any_name() {
    let files = Files::open(Path::new("/")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    symlink("/proc/self/environ", dir.path().join("link")).unwrap();
    symlink("/proc/self/root/etc", dir.path().join("magic")).unwrap();
    let link = dir.path().join("link").to_str().unwrap().to_owned();
    for path in ["/proc/version", "/sys/kernel", "/etc/../proc/self/fd", "/dev/fd", &link] {
        let code = files.stat(&me(), &at(path)).unwrap_err().code;
        assert_eq!(code, ErrorCode::Denied, "{path}");
    }
    for path in [dir.path().join("magic/passwd").to_str().unwrap(), "/dev/stdin"] {
        assert_eq!(files.stat(&me(), &at(path)).unwrap_err().code, ErrorCode::WrongKind, "{path}");
    }
    // Here the kernel's tree is the root, so only the magic number identifies it.
    let proc = Files::open(Path::new("/proc")).unwrap();
    assert_eq!(proc.get(&me(), &at("/version"), 0).unwrap_err().code, ErrorCode::Denied);
    assert_eq!(files.get(&me(), &at("/dev/null"), 0).unwrap_err().code, ErrorCode::WrongKind);
}

#[test]
fn a_write_replaces_only_the_file_of_the_path() {
    use ErrorCode::{Denied, Exists, NotFound, WrongKind};
    for (at, replace, expected) in [
        (at("/f"), true, Ok("f")),
        (at("/f"), false, Err(Exists)),
        (at("/fresh"), false, Ok("fresh")),
        (at("/to-f"), true, Ok("f")),
        (at("/d/up"), true, Ok("f")),
        (at("/absolute"), true, Ok("f")),
        (at("/to-d/x"), true, Ok("d/x")),
        (at("/dangling"), false, Ok("d/not-yet")),
        (no_follow("/to-f"), true, Ok("to-f")),
        (no_follow("/to-f"), false, Err(Exists)),
        (no_follow("/dangling"), true, Ok("dangling")),
        (at("/loop"), true, Err(WrongKind)),
        (at("/d"), true, Err(WrongKind)),
        (at("/to-d"), true, Err(WrongKind)),
        (at("/d/.."), true, Err(WrongKind)),
        (at("/"), true, Err(WrongKind)),
        (at("/new/"), true, Err(WrongKind)),
        (at("/pipe"), true, Err(WrongKind)),
        (at("/f/below"), true, Err(WrongKind)),
        (at("/missing/x"), true, Err(NotFound)),
        (at("/out-f"), true, Err(NotFound)),
        (at("/out/f"), true, Err(NotFound)),
        (at("/proc"), true, Err(Denied)),
        (at("/sys/new"), true, Err(Denied)),
        (at("/to-run/new"), true, Err(Denied)),
        (at("/to-key"), true, Err(Denied)),
    ] {
        let w = world();
        let done = w.put(&at, replace).map(|it| it.size);
        assert_eq!(done, expected.map(|_| 3), "{at:?}");
        if let Ok(path) = expected {
            assert!(fs::symlink_metadata(w.path(path)).unwrap().is_file(), "{at:?}");
            assert_eq!(fs::read_to_string(w.path(path)).unwrap(), "new", "{at:?}");
        }
        assert_eq!(w.temporaries(), 0, "{at:?}");
        assert_eq!(fs::read_to_string(w.dir.path().join("outside/f")).unwrap(), "outside/f");
    }
}

#[test]
fn a_file_retains_its_mode_and_a_new_one_gets_the_requested_mode() {
    let w = world();
    fs::set_permissions(w.path("f"), fs::Permissions::from_mode(0o4751)).unwrap();
    let mode = |path: &str, mode: Option<u32>| {
        w.files.put(&w.ids, &at(path), options(mode, false, true)).unwrap().commit().unwrap();
        fs::metadata(w.path(path)).unwrap().mode() & 0o7777
    };
    assert_eq!(mode("/f", Some(0o600)), 0o751); // never set-id
    assert_eq!(mode("/a", Some(0o777)), 0o777);
    assert_eq!(mode("/b", Some(0o6644)), 0o644);
    fs::write(w.path("by-hand"), "").unwrap();
    assert_eq!(mode("/c", None), fs::metadata(w.path("by-hand")).unwrap().mode() & 0o7777);
}

#[test]
fn an_uncommitted_or_failed_write_leaves_no_file() {
    let w = world();
    let mut uncommitted = w.files.put(&w.ids, &at("/f"), options(None, false, true)).unwrap();
    uncommitted.write(b"half").unwrap();
    assert_eq!(w.temporaries(), 1);
    drop(uncommitted);
    assert_eq!((w.temporaries(), w.content(&at("/f"))), (0, Ok("root/f".to_owned())));

    let late = w.files.put(&w.ids, &at("/late"), options(None, false, false)).unwrap();
    fs::write(w.path("late"), "theirs").unwrap();
    assert_eq!(late.commit().unwrap_err().code, ErrorCode::Exists);
    let onto = w.files.put(&w.ids, &at("/onto"), options(None, false, true)).unwrap();
    fs::create_dir(w.path("onto")).unwrap();
    assert_eq!(onto.commit().unwrap_err().code, ErrorCode::WrongKind);
    assert_eq!((w.temporaries(), fs::read_to_string(w.path("late")).unwrap().as_str()), (0, "theirs"));
}

#[test]
fn temporary_files_are_hidden_and_those_of_a_killed_guest_are_removed() {
    let w = world();
    let names = |files: &Files| -> Vec<_> {
        files.list(&w.ids, &at("/d"), 100).unwrap().0.into_iter().map(|it| it.name).collect()
    };
    let writing = w.files.put(&w.ids, &at("/d/new"), options(None, false, true)).unwrap();
    assert_eq!((names(&w.files), w.temporaries()), (vec!["sub".to_owned(), "up".to_owned()], 1));
    let much_later = || {
        let mut files = Files::open(&w.path("")).unwrap();
        files.leftovers.since = i128::MAX;
        files
    };
    let put = |files: &Files, path: &str| {
        files.put(&w.ids, &at(path), options(None, false, true)).unwrap().commit().unwrap();
        w.temporaries()
    };
    assert_eq!(put(&much_later(), "/d/other"), 1, "another guest has locked it");
    let name = fs::read_dir(w.path("d")).unwrap().map(|it| it.unwrap().file_name());
    let name = name.filter(|it| it.as_encoded_bytes().starts_with(b".coracle-")).max().unwrap();
    drop(writing);
    // Simulates a guest that was killed.
    fs::write(w.path("d").join(name), "half").unwrap();
    let next = much_later();
    assert_eq!(put(&next, "/d/third"), 0);
    assert_eq!(names(&next), ["other", "sub", "third", "up"]);
}

//! Executes requests on a directory of this machine, as the user of the tests.

mod changes;
mod fair;
mod identity;
mod search;
mod staged;
mod tricks;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::*;
use crate::protocol::workspace::{
    EntryKind, LineEnding, OpenMode, SearchLimits, TextRange, WorkspaceEntry, WorkspaceErrorCode, WriteReport,
};

const ALL: SearchLimits = SearchLimits { most: 1000, entries: 200_000, within_ms: 10_000 };

/// A machine with a workspace `/ws` and a file outside of it.
struct World {
    dir: tempfile::TempDir,
    tracker: FileTracker,
    locks: Locks,
    stop: CancelFlag,
    deferred: DeferredSync,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("ws")).unwrap();
        fs::write(dir.path().join("secret"), "a secret").unwrap();
        Self {
            dir,
            tracker: FileTracker::default(),
            locks: Locks::default(),
            stop: CancelFlag::default(),
            deferred: DeferredSync::default(),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("ws").join(path)
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, path: &str, to: impl AsRef<Path>) {
        symlink(to, self.path(path)).unwrap();
    }

    fn has(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn work(&self) -> WorkspaceOperation<'_> {
        let root = Root::open(self.dir.path(), "/ws").unwrap().unwrap();
        WorkspaceOperation {
            root,
            tracker: &self.tracker,
            locks: &self.locks,
            stop: &self.stop,
            deferred: &self.deferred,
        }
    }

    fn execute(&self, operation: WorkspaceOp) -> WorkspaceReply {
        self.work().execute(operation).unwrap_or_else(|FsError(error)| WorkspaceReply::Not(error))
    }

    fn write(&self, path: &str, how: OpenMode, content: &str) -> OperationResult<WriteReport> {
        let write = write::Write { path, how, executable: None, seen: true, tool: "write_file" };
        self.work().write(&write, content.as_bytes())
    }

    fn edit(&self, path: &str, old: &str, new: &str) -> OperationResult<WriteReport> {
        let (old, new) = (old.as_bytes(), new.as_bytes());
        self.work().edit(&edit::Edit { path, old, new, all: false, seen: true, tool: "edit_file" })
    }

    fn read(&self, path: &str) -> OperationResult<TextRange> {
        self.work().lines(path, (0, 2000, 256 << 10))
    }

    fn list(&self, path: &str) -> Vec<WorkspaceEntry> {
        match self.execute(WorkspaceOp::List { path: path.into(), most: 2000 }) {
            WorkspaceReply::Listed { entries, .. } => entries,
            other => panic!("{other:?}"),
        }
    }

    fn glob(&self, path: &str, pattern: &str) -> Vec<String> {
        let operation = WorkspaceOp::Glob { path: path.into(), pattern: pattern.into(), gitignore: false, bounds: ALL };
        match self.execute(operation) {
            WorkspaceReply::Globbed { entries, complete: true, .. } => entries.into_iter().map(|it| it.path).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn remove(&self, path: &str) -> OperationResult<(u64, u64)> {
        match self.work().remove(path, 10_000, "rm")? {
            WorkspaceReply::Removed { files, directories, complete: true } => Ok((files, directories)),
            other => panic!("{other:?}"),
        }
    }
}

fn code<T: std::fmt::Debug>(result: OperationResult<T>) -> WorkspaceErrorCode {
    result.unwrap_err().0.code
}

#[test]
fn w16_a_long_directory_is_counted_completely_and_listed_partly() {
    let world = World::new();
    for it in 0..2345 {
        world.file(&format!("{it:04}"), "");
    }
    fs::create_dir(world.path("z")).unwrap();
    match world.execute(WorkspaceOp::List { path: String::new(), most: 2000 }) {
        WorkspaceReply::Listed { entries, omitted, directories, files } => {
            assert_eq!((entries.len(), omitted, directories, files), (2000, 346, 1, 2345));
            assert!(entries.is_sorted_by(|one, other| one.path < other.path));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn w23_only_a_file_whose_current_content_was_read_is_overwritten() {
    let world = World::new();
    world.file("a", "one\n");
    assert_eq!(code(world.write("a", OpenMode::Create, "x")), WorkspaceErrorCode::Exists);
    assert_eq!(code(world.write("a", OpenMode::Overwrite, "x")), WorkspaceErrorCode::NotSeen);
    assert_eq!(code(world.write("a", OpenMode::Append, "x")), WorkspaceErrorCode::NotSeen);
    assert_eq!(code(world.edit("a", "one", "two")), WorkspaceErrorCode::NotSeen);
    assert_eq!(world.read("a").unwrap().lines, ["one"]);
    let edited = world.edit("a", "one", "two").unwrap();
    assert_eq!((edited.file.version, edited.changed, edited.replaced, edited.created), (2, true, 1, false));
    world.file("a", "three\n");
    assert_eq!(code(world.edit("a", "three", "four")), WorkspaceErrorCode::Stale);
    assert_eq!(code(world.write("a", OpenMode::Overwrite, "x")), WorkspaceErrorCode::Stale);
    let unread = write::Write { path: "a", how: OpenMode::Append, executable: None, seen: false, tool: "t" };
    let appended = world.work().write(&unread, b"x").unwrap();
    assert_eq!((appended.begin.as_str(), appended.file.size, appended.file.version), ("three\nx", 7, 3));
    assert_eq!(world.write("a", OpenMode::Overwrite, "y").unwrap().file.version, 4);
    let same = world.write("a", OpenMode::Overwrite, "y").unwrap();
    assert_eq!((same.changed, same.file.version), (false, 4));
    assert_eq!(code(world.write("a/b", OpenMode::Create, "x")), WorkspaceErrorCode::NotDirectory);
    assert_eq!(code(world.write("", OpenMode::Create, "x")), WorkspaceErrorCode::IsDirectory);
}

#[test]
fn permissions_of_a_file_are_retained_and_those_of_a_new_one_are_set() {
    let world = World::new();
    let mode = |path: &str| fs::metadata(world.path(path)).unwrap().permissions().mode() & 0o7777;
    let write = |path: &str, executable| {
        let write = write::Write { path, how: OpenMode::Overwrite, executable, seen: false, tool: "t" };
        world.work().write(&write, b"x").unwrap();
        mode(path)
    };
    assert_eq!(write("deep/er/plain", None), 0o644);
    assert_eq!(write("program", Some(true)), 0o755);
    assert_eq!(write("program", None), 0o755);
    assert_eq!(write("program", Some(false)), 0o644);
    world.file("odd", "y");
    fs::set_permissions(world.path("odd"), fs::Permissions::from_mode(0o4640)).unwrap();
    assert_eq!(write("odd", None), 0o640);
}

#[test]
fn w25_content_beyond_the_limit_is_not_written() {
    let world = World::new();
    let large = vec![b'a'; 33_554_433];
    let write = write::Write { path: "new", how: OpenMode::Create, executable: None, seen: false, tool: "t" };
    assert_eq!(code(world.work().write(&write, &large)), WorkspaceErrorCode::TooLarge);
    assert!(!world.path("new").exists());
    assert_eq!(world.work().write(&write, &large[1..]).unwrap().file.size, 33_554_432);
    let edit = edit::Edit { path: "new", old: b"a", new: b"bb", all: true, seen: false, tool: "t" };
    assert_eq!(code(world.work().edit(&edit)), WorkspaceErrorCode::TooLarge);
}

#[test]
fn w22_long_lines_many_lines_and_bytes() {
    let world = World::new();
    let many: String = (0..3000).map(|it| format!("{it}\n")).collect();
    world.file("many", &many);
    let text = world.read("many").unwrap();
    assert_eq!((text.lines.len(), text.total, text.lines[1999].as_str()), (2000, 3000, "1999"));
    let text = world.work().lines("many", (2000, 2000, 256 << 10)).unwrap();
    assert_eq!((text.lines.len(), text.offset), (1000, 2000));
    let text = world.work().lines("many", (9000, 2000, 256 << 10)).unwrap();
    assert_eq!((text.lines.len(), text.offset), (0, 3000));
    world.file("long", "ä".repeat(5 << 19) + "\nnext\n");
    let text = world.read("long").unwrap();
    assert_eq!((text.lines.len(), text.lines[0].len(), text.cut), (1, 256 << 10, (5 << 20) - (256 << 10)));
    for size in [300, 9 << 20] {
        let binary: Vec<u8> = (0..=255).cycle().take(size).collect();
        world.file("binary", &binary);
        assert_eq!(code(world.read("binary")), WorkspaceErrorCode::Binary, "{size}");
        match world.execute(WorkspaceOp::Bytes { path: "binary".into(), offset: 7, limit: 50 }) {
            WorkspaceReply::Bytes { content, offset: 7, size: all } => {
                assert_eq!((&content[..], all), (&binary[7..57], size as u64));
            }
            other => panic!("{other:?}"),
        }
    }
    let large = "äbc\r\n".repeat(2 << 20);
    world.file("large", &large);
    let text = world.work().lines("large", ((2 << 20) - 1, 10, 100)).unwrap();
    assert_eq!((text.lines, text.total, text.ending), (vec!["äbc".to_owned()], 2 << 20, LineEnding::Crlf));
}

#[test]
fn w24_readers_see_only_complete_versions_and_no_temporary_files() {
    if !coracle_skips::has_root() {
        return;
    }
    let world = World::new();
    world.write("a", OpenMode::Create, &"0".repeat(5000)).unwrap();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for it in 1..1000 {
                world.write("a", OpenMode::Overwrite, &(it % 10).to_string().repeat(5000)).unwrap();
            }
        });
        while !writing.is_finished() {
            let content = world.has("a");
            assert!(content.len() == 5000 && content.bytes().all(|it| it == content.as_bytes()[0]));
            assert_eq!(world.list("").len(), 1);
        }
    });
    assert_eq!(fs::read_dir(world.path("")).unwrap().count(), 1);
    let leftover = ".coracle-0123456789abcdef.tmp";
    world.file(leftover, "half");
    world.file(&format!("d/{leftover}"), "half");
    assert_eq!(world.glob("", "**"), ["a"]);
    assert_eq!(code(world.read(leftover)), WorkspaceErrorCode::NotFound);
    assert_eq!(code(world.write(leftover, OpenMode::Create, "x")), WorkspaceErrorCode::NotFound);
    world.work().remove_leftovers(SystemTime::UNIX_EPOCH);
    assert!(world.path(leftover).exists(), "it may be one of this guest's own");
    let later = World { tracker: FileTracker::default(), ..world };
    later.work().remove_leftovers(SystemTime::now() + std::time::Duration::from_secs(1));
    assert!(!later.path(leftover).exists() && !later.path("d").join(leftover).exists());
}

#[test]
fn concurrent_changes_of_one_file_are_serialised() {
    let world = World::new();
    world.write("a", OpenMode::Create, "").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let write =
                        write::Write { path: "a", how: OpenMode::Append, executable: None, seen: true, tool: "t" };
                    world.work().write(&write, b"x").unwrap();
                }
            });
        }
    });
    assert_eq!(world.has("a").len(), 200);
}

#[test]
fn a_directory_is_created_once() {
    let world = World::new();
    let make = |path: &str, parents, exist_ok| world.work().make_dir(path, parents, exist_ok).map(|it| it.kind);
    assert_eq!(code(make("a/b", false, false)), WorkspaceErrorCode::NotFound);
    assert_eq!(make("a/b", true, false).unwrap(), EntryKind::Directory);
    assert_eq!(code(make("a/b", true, false)), WorkspaceErrorCode::Exists);
    assert_eq!(make("a/b", true, true).unwrap(), EntryKind::Directory);
    world.file("f", "");
    assert_eq!(code(make("f", true, true)), WorkspaceErrorCode::Exists);
    assert_eq!(code(make("f/g", true, true)), WorkspaceErrorCode::NotDirectory);
}

#[test]
fn remove_one_removes_a_file_a_link_or_an_empty_directory() {
    let world = World::new();
    world.file("dir/file", "x");
    world.link("dir/out", "../../secret");
    let remove = |path: &str| world.execute(WorkspaceOp::RemoveOne { path: path.into(), tool: "x".into() });
    let removed = |files, directories| WorkspaceReply::Removed { files, directories, complete: true };
    let WorkspaceReply::Not(error) = remove("dir") else { panic!("the directory is not empty") };
    assert_eq!(error.code, WorkspaceErrorCode::NotEmpty);
    assert_eq!([remove("dir/out"), remove("dir/file"), remove("dir")], [removed(1, 0), removed(1, 0), removed(0, 1)]);
    assert_eq!(fs::read_to_string(world.dir.path().join("secret")).unwrap(), "a secret");
    let refused = ["dir", ""].map(|it| match remove(it) {
        WorkspaceReply::Not(error) => error.code,
        other => panic!("{other:?}"),
    });
    assert_eq!(refused, [WorkspaceErrorCode::NotFound, WorkspaceErrorCode::Denied]);
}

//! Checkpoints of directories.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use coracle_runtime::CheckpointRequest;
use rustix::fs::{FileType, Mode, XattrFlags, lremovexattr, lsetxattr, mknodat};

use super::{
    CaptureRequest, Captured, CheckpointDir, Index, IndexCache, RestoreRequest, StoredCheckpoint, capture,
    is_unchanged, restore,
};
use crate::tree_copy::CopyPass;
use crate::tree_copy::tests::listing;

/// An upper directory, and its checkpoints.
struct Fixture {
    dir: tempfile::TempDir,
    checkpoints: CheckpointDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("upper")).unwrap();
        let checkpoints = CheckpointDir::at(dir.path().join("checkpoints"));
        checkpoints.create().unwrap();
        Self { dir, checkpoints }
    }

    fn upper(&self) -> PathBuf {
        self.dir.path().join("upper")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.upper().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
    }

    fn captured(&self, before: &Index, max_copied: Option<u64>, mapped: &BTreeSet<Vec<u8>>) -> Captured {
        let request = CaptureRequest {
            upper: &self.upper(),
            objects: &self.checkpoints.objects(),
            left_out: &["/proc"],
            mapped,
            max_copied,
        };
        capture(&request, CopyPass::Still, before).unwrap()
    }

    fn save(&self) -> Option<StoredCheckpoint> {
        self.save_with_mapped(&BTreeSet::new())
    }

    fn save_with_mapped(&self, mapped: &BTreeSet<Vec<u8>>) -> Option<StoredCheckpoint> {
        self.save_as(&noted(), mapped)
    }

    fn save_as(&self, request: &CheckpointRequest, mapped: &BTreeSet<Vec<u8>>) -> Option<StoredCheckpoint> {
        let before = self.checkpoints.repaired_index().unwrap();
        self.checkpoints.begin().unwrap();
        let Captured::Index(index) = self.captured(&before, None, mapped) else { panic!("too large") };
        self.checkpoints.save(request, &before, index).unwrap()
    }

    fn rewind(&self, number: u64) {
        let known = self.checkpoints.repaired_index().unwrap();
        let entries = self.restore(number, &self.upper(), &known);
        self.checkpoints.write_index(&Index { current: number, entries, ..known }).unwrap();
    }

    fn restore(&self, number: u64, into: &Path, known: &Index) -> Vec<super::IndexEntry> {
        let tree = self.checkpoints.tree(number).unwrap().unwrap();
        let objects = self.checkpoints.objects();
        restore(&RestoreRequest { upper: into, objects: &objects, left_out: &["/proc"], tree: &tree }, known).unwrap()
    }

    fn objects(&self) -> usize {
        fs::read_dir(self.checkpoints.objects()).unwrap().count()
    }

    /// What was written until now has other times than what is written later.
    fn settle(&self) {
        let begun = SystemTime::now();
        while begun.elapsed().unwrap_or_default() < Duration::from_millis(60) {
            fs::write(self.dir.path().join("clock"), "x").unwrap();
        }
    }
}

fn noted() -> CheckpointRequest {
    CheckpointRequest { note: "note".into(), ..CheckpointRequest::default() }
}

/// A change of a tree.
type Step = fn(&Fixture);

const STEPS: [Step; 9] = [
    |it| {
        it.write("src/main.rs", "fn main() {}");
        it.write("src/lib/a", &"a".repeat(100_000));
        it.write("data/db", "1");
        symlink("../nowhere", it.at("src/link")).unwrap();
        fs::hard_link(it.at("data/db"), it.at("src/db")).unwrap();
        mknodat(rustix::fs::CWD, it.at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
        it.write("proc/left-out", "x");
    },
    |it| fs::remove_dir_all(it.at("src/lib")).unwrap(),
    |it| {
        fs::rename(it.at("src"), it.at("moved")).unwrap();
        it.write("src", "a file");
    },
    |it| {
        fs::set_permissions(it.at("moved"), fs::Permissions::from_mode(0o1700)).unwrap();
        fs::set_permissions(it.at("moved/main.rs"), fs::Permissions::from_mode(0o4755)).unwrap();
    },
    |it| {
        lsetxattr(it.at("moved"), "user.note", b"one", XattrFlags::empty()).unwrap();
        lsetxattr(it.at("moved/main.rs"), "user.note", b"two", XattrFlags::empty()).unwrap();
    },
    |it| {
        let sparse = fs::File::create(it.at("sparse")).unwrap();
        sparse.write_all_at(b"middle", 5 << 16).unwrap();
        sparse.set_len(9 << 16).unwrap();
    },
    |it| {
        // Through one of its names.
        fs::write(it.at("data/db"), "22").unwrap();
        fs::remove_file(it.at("src")).unwrap();
        fs::create_dir(it.at("src")).unwrap();
    },
    |it| {
        lremovexattr(it.at("moved"), "user.note").unwrap();
        fs::remove_file(it.at("moved/db")).unwrap();
        fs::write(it.at("moved/db"), "another file").unwrap();
    },
    |it| {
        if rustix::process::geteuid().is_root() {
            mknodat(rustix::fs::CWD, it.at("whiteout"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
            lsetxattr(it.at("data"), "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
            std::os::unix::fs::chown(it.at("moved/main.rs"), Some(1000), Some(1001)).unwrap();
        }
        fs::rename(it.at("moved"), it.at("data/moved")).unwrap();
    },
];

/// All that a program can see of a tree.
type State = Vec<(String, Vec<u8>)>;

/// A tree with a checkpoint after each step, and its state then.
fn with_steps(settle: bool) -> (Fixture, Vec<State>) {
    let fixture = Fixture::new();
    let mut states = Vec::new();
    for step in STEPS {
        step(&fixture);
        if settle {
            fixture.settle();
        }
        let saved = fixture.save().unwrap();
        assert_eq!(saved.number, states.len() as u64 + 1);
        states.push(listing(&fixture.upper()));
    }
    (fixture, states)
}

#[test]
fn each_state_is_restored_to_the_last_attribute() {
    for settle in [false, true] {
        let (fixture, states) = with_steps(settle);
        for number in [9, 1, 8, 2, 2, 7, 3, 6, 4, 5, 9] {
            fixture.rewind(number);
            assert_eq!(listing(&fixture.upper()), states[number as usize - 1], "checkpoint {number}");
            assert_eq!(fixture.save(), None, "nothing has changed since {number}");
        }
    }
}

#[test]
fn an_empty_directory_is_filled_from_each_state() {
    let (fixture, states) = with_steps(false);
    for (at, state) in states.iter().enumerate() {
        let into = fixture.dir.path().join(format!("branch{at}"));
        fs::create_dir(&into).unwrap();
        fixture.restore(at as u64 + 1, &into, &Index::default());
        let expected: Vec<_> = state.iter().filter(|it| !it.0.starts_with("proc")).cloned().collect();
        assert_eq!(listing(&into), expected, "checkpoint {}", at + 1);
    }
}

#[test]
fn what_has_not_changed_is_not_copied_again() {
    let fixture = Fixture::new();
    (0..20).for_each(|it| fixture.write(&format!("a/b/{it}"), "text"));
    fixture.settle();
    fixture.save().unwrap();
    let objects = fixture.objects();
    assert_eq!((fixture.save(), fixture.objects()), (None, objects));
    fs::rename(fixture.at("a/b"), fixture.at("a/c")).unwrap();
    let saved = fixture.save().unwrap();
    // The directories have other times.
    assert!(fixture.objects() <= objects + 2, "{} and then {}", objects, fixture.objects());
    assert_eq!(saved.changes.iter().filter(|it| it.object.is_none()).count(), 21);
}

#[test]
fn each_change_is_seen_without_a_look_into_the_files() {
    let (fixture, _) = with_steps(true);
    fixture.settle();
    // Now all times are older than the last checkpoint.
    fixture.save();
    let cache = IndexCache::default();
    let is_unchanged = || is_unchanged(&fixture.upper(), &cache.read(&fixture.checkpoints).unwrap().unwrap()).unwrap();
    assert!(is_unchanged() && is_unchanged());
    let changes: [&dyn Fn(); 7] = [
        &|| fixture.write("data/db", "33"),
        &|| fixture.write("new", "x"),
        &|| fs::remove_file(fixture.at("sparse")).unwrap(),
        &|| fs::rename(fixture.at("data/moved"), fixture.at("data/again")).unwrap(),
        &|| fs::set_permissions(fixture.at("data/again"), fs::Permissions::from_mode(0o711)).unwrap(),
        &|| lsetxattr(fixture.at("data/again/main.rs"), "user.note", b"three", XattrFlags::empty()).unwrap(),
        &|| drop(fs::File::options().append(true).open(fixture.at("new")).unwrap().set_len(9)),
    ];
    for (at, change) in changes.iter().enumerate() {
        change();
        assert!(!is_unchanged(), "change {at}");
        fixture.settle();
        fixture.save().unwrap();
        fixture.settle();
        fixture.save();
        assert!(is_unchanged(), "after change {at}");
    }
}

#[test]
fn a_change_without_another_time_is_found() {
    let fixture = Fixture::new();
    fixture.write("data", "one");
    let saved = fixture.save().unwrap();
    // In the same instant as the last change, perhaps: the content is compared.
    fixture.write("data", "two");
    assert_eq!(fixture.save().unwrap().changes.len(), 1);
    fixture.settle();
    assert_eq!(fixture.save(), None);
    // The index says that the time shows each change; a mapping writes without one.
    let mut index = fixture.checkpoints.index().unwrap();
    fixture.write("data", "333");
    let changed = super::Fingerprint::new(&rustix::fs::lstat(fixture.at("data")).unwrap());
    index.entries.iter_mut().filter(|it| it.path == b"data").for_each(|it| it.fingerprint = changed);
    index.entries.iter_mut().for_each(|it| it.settled = true);
    fixture.checkpoints.write_index(&index).unwrap();
    let found = fixture.save_with_mapped(&BTreeSet::from([b"data".to_vec()])).unwrap();
    assert_eq!(found.changes.len(), 1);
    fixture.rewind(saved.number);
    assert_eq!(fs::read_to_string(fixture.at("data")).unwrap(), "one");
}

#[test]
fn a_copy_of_the_tree_needs_no_new_objects() {
    let fixture = Fixture::new();
    fixture.write("dir/one", "same");
    fs::hard_link(fixture.at("dir/one"), fixture.at("dir/two")).unwrap();
    fixture.settle();
    let saved = fixture.save().unwrap().number;
    let objects = fixture.objects();
    let copy = fixture.dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fixture.restore(saved, &copy, &Index::default());
    fs::remove_dir_all(fixture.upper()).unwrap();
    fs::rename(&copy, fixture.upper()).unwrap();
    assert_eq!((fixture.save(), fixture.objects()), (None, objects));
    // Two files with the content of one that had two names are not that one again.
    fs::rename(fixture.at("dir/two"), fixture.at("old")).unwrap();
    fs::create_dir(fixture.at("old-tree")).unwrap();
    fixture.restore(saved, &fixture.at("old-tree"), &Index::default());
    fs::rename(fixture.at("old-tree/dir/one"), fixture.at("dir/two")).unwrap();
    fs::remove_dir_all(fixture.at("old-tree")).unwrap();
    fs::remove_file(fixture.at("old")).unwrap();
    let state = listing(&fixture.upper());
    let apart = fixture.save().unwrap().number;
    fixture.write("dir/one", "other");
    fixture.save().unwrap();
    fixture.rewind(apart);
    assert_eq!(listing(&fixture.upper()), state);
}

#[test]
fn others_keep_their_state_when_a_checkpoint_is_removed() {
    let (fixture, states) = with_steps(true);
    let whole = fixture.objects();
    // Two that continue from the same one.
    fixture.rewind(4);
    fixture.write("branch", "other");
    let branch = fixture.save().unwrap().number;
    let of_branch = listing(&fixture.upper());
    fixture.checkpoints.remove(&[1, 3, 4, 6]).unwrap();
    assert_eq!(fixture.checkpoints.numbers().unwrap(), [2, 5, 7, 8, 9, branch]);
    for number in [9, 2, 7, 5, 8] {
        fixture.rewind(number);
        assert_eq!(listing(&fixture.upper()), states[number as usize - 1], "checkpoint {number}");
    }
    fixture.rewind(branch);
    assert_eq!(listing(&fixture.upper()), of_branch);
    fixture.checkpoints.prune(&CheckpointRequest { max_count: Some(1), ..CheckpointRequest::default() }).unwrap();
    assert_eq!(fixture.checkpoints.numbers().unwrap(), [2, branch], "a way back stays");
    fixture.checkpoints.remove(&[2]).unwrap();
    assert!(fixture.objects() < whole, "{whole} and then {}", fixture.objects());
    fixture.rewind(branch);
    assert_eq!(listing(&fixture.upper()), of_branch);
    let last = fixture.checkpoints.checkpoint(branch).unwrap().unwrap();
    assert_eq!((last.parent, last.changes.len()), (None, fixture.checkpoints.index().unwrap().entries.len()));
}

#[test]
fn the_oldest_are_removed_while_all_need_too_much() {
    let fixture = Fixture::new();
    let saved: Vec<_> = (0..5)
        .map(|it| {
            fixture.write("large", &it.to_string().repeat(200_000));
            fixture.settle();
            fixture.save().unwrap()
        })
        .collect();
    assert!(saved.iter().all(|it| it.bytes >= 200_000), "{saved:?}");
    // Beside the current state.
    let limits = CheckpointRequest { max_bytes: Some(500_000), ..CheckpointRequest::default() };
    fixture.checkpoints.prune(&limits).unwrap();
    assert_eq!(fixture.checkpoints.numbers().unwrap(), [3, 4, 5]);
    fixture.checkpoints.prune(&CheckpointRequest { max_bytes: Some(1), ..limits }).unwrap();
    assert_eq!(fixture.checkpoints.numbers().unwrap(), [4, 5], "the current one and the one before it stay");
    let size: u64 = fs::read_dir(fixture.checkpoints.objects())
        .unwrap()
        .map(|it| it.unwrap().metadata().unwrap().blocks() * 512)
        .sum();
    assert!(size < 500_000, "{size}");
}

#[test]
fn limits_remove_steps_before_what_a_user_has_saved() {
    let fixture = Fixture::new();
    for (at, is_step) in [false, true, true, true].into_iter().enumerate() {
        fixture.write("data", &at.to_string());
        fixture.settle();
        fixture.save_as(&CheckpointRequest { is_step, ..noted() }, &BTreeSet::new()).unwrap();
    }
    fixture.checkpoints.prune(&CheckpointRequest { max_count: Some(3), ..CheckpointRequest::default() }).unwrap();
    assert_eq!(fixture.checkpoints.numbers().unwrap(), [1, 3, 4]);
    let noted = |number| fixture.checkpoints.checkpoint(number).unwrap().map(|it| (it.note, it.is_step)).unwrap();
    let request = CheckpointRequest { note: "tests pass".into(), ..CheckpointRequest::default() };
    fixture.checkpoints.rename(4, &CheckpointRequest { is_step: true, ..request.clone() }).unwrap();
    assert_eq!(noted(4), ("note".to_owned(), true));
    fixture.checkpoints.rename(4, &request).unwrap();
    assert_eq!(noted(4), ("tests pass".to_owned(), false));
    fixture.checkpoints.rename(4, &CheckpointRequest::default()).unwrap();
    assert_eq!(noted(4), ("tests pass".to_owned(), false), "an empty note replaces none");
}

#[test]
fn a_copy_that_would_be_too_large_is_given_up_and_leaves_nothing() {
    let fixture = Fixture::new();
    fixture.write("small", "x");
    fixture.settle();
    fixture.save().unwrap();
    let objects = fixture.objects();
    fixture.write("large", &"x".repeat(300_000));
    let before = fixture.checkpoints.repaired_index().unwrap();
    fixture.checkpoints.begin().unwrap();
    let captured = fixture.captured(&before, Some(100_000), &BTreeSet::new());
    // Where files share their content, nothing is copied.
    if captured == Captured::TooLarge {
        assert_eq!(fixture.checkpoints.repaired_index().unwrap(), before);
        assert_eq!(fixture.objects(), objects);
    }
    assert_eq!(fixture.save().unwrap().number, 2);
}

#[test]
fn what_a_killed_process_left_is_removed_and_never_taken_for_something_else() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    fixture.settle();
    fixture.save().unwrap();
    let first = listing(&fixture.upper());
    // Killed after the objects.
    fixture.write("a", "two");
    fixture.write("b", "two");
    fixture.settle();
    let before = fixture.checkpoints.repaired_index().unwrap();
    fixture.checkpoints.begin().unwrap();
    let Captured::Index(index) = fixture.captured(&before, None, &BTreeSet::new()) else { panic!("too large") };
    let second = listing(&fixture.upper());
    // Killed after the checkpoint, before the index.
    let older = fixture.checkpoints.index().unwrap();
    fixture.checkpoints.save(&noted(), &before, index).unwrap().unwrap();
    fixture.checkpoints.write_index(&older).unwrap();
    fixture.checkpoints.begin().unwrap();
    fixture.write("a", "three");
    fixture.settle();
    let third = fixture.save().unwrap();
    assert_eq!((third.number, third.parent), (3, Some(1)));
    let state = listing(&fixture.upper());
    for (number, expected) in [(1, &first), (2, &second), (3, &state)] {
        fixture.rewind(number);
        assert_eq!(&listing(&fixture.upper()), expected, "checkpoint {number}");
    }
}

#[test]
fn numbers_are_not_used_again() {
    let fixture = Fixture::new();
    for text in ["one", "two", "three"] {
        fixture.write("data", text);
        fixture.settle();
        fixture.save().unwrap();
    }
    fixture.rewind(1);
    fixture.checkpoints.remove(&[3]).unwrap();
    fixture.write("data", "four");
    assert_eq!(fixture.save().unwrap().number, 4);
}

#[test]
fn a_hole_of_any_length_is_compared_at_once() {
    let fixture = Fixture::new();
    let file = fs::File::create(fixture.at("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    file.write_all_at(b"end", (1 << 40) - 3).unwrap();
    fixture.save().unwrap();
    // As if it were mapped: its content is compared.
    let mapped = BTreeSet::from([b"sparse".to_vec()]);
    assert_eq!(fixture.save_with_mapped(&mapped), None);
    file.write_all_at(b"new", 1 << 39).unwrap();
    assert_eq!(fixture.save_with_mapped(&mapped).unwrap().changes.len(), 1);
    let copied = fs::metadata(fixture.checkpoints.objects().join("2")).unwrap();
    assert!(copied.blocks() < 1000, "{}", copied.blocks());
}

#[test]
fn a_tree_of_any_depth_is_removed_and_too_long_a_path_is_refused() {
    let fixture = Fixture::new();
    fixture.write("first", "x");
    fixture.settle();
    fixture.save().unwrap();
    let mut dir = fs::File::open(fixture.upper()).unwrap();
    for _ in 0..1500 {
        rustix::fs::mkdirat(&dir, "d", Mode::from_raw_mode(0o755)).unwrap();
        dir = rustix::fs::openat(&dir, "d", rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap().into();
    }
    fixture.save().unwrap();
    fixture.rewind(1);
    assert!(!fixture.at("d").exists() && fixture.at("first").exists());
    let mut dir = fs::File::open(fixture.upper()).unwrap();
    for _ in 0..20 {
        let name = "n".repeat(250);
        rustix::fs::mkdirat(&dir, &*name, Mode::from_raw_mode(0o755)).unwrap();
        dir = rustix::fs::openat(&dir, &*name, rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap().into();
    }
    let (upper, objects) = (fixture.upper(), fixture.checkpoints.objects());
    let none = BTreeSet::new();
    let request = CaptureRequest { upper: &upper, objects: &objects, left_out: &[], mapped: &none, max_copied: None };
    let before = fixture.checkpoints.repaired_index().unwrap();
    assert!(capture(&request, CopyPass::Still, &before).unwrap_err().to_string().contains("long"));
}

#[test]
fn whiteouts_are_compared_by_what_they_are() {
    if !rustix::process::geteuid().is_root() {
        coracle_skips::skip(coracle_skips::NEEDS_ROOT);
        return;
    }
    let fixture = Fixture::new();
    mknodat(rustix::fs::CWD, fixture.at("one"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    fixture.settle();
    fixture.save().unwrap();
    // As an overlay does: all are one file.
    fs::hard_link(fixture.at("one"), fixture.at("two")).unwrap();
    let saved = fixture.save().unwrap();
    let changed: Vec<_> = saved.changes.iter().map(|it| String::from_utf8_lossy(&it.path).into_owned()).collect();
    assert_eq!(changed, ["", "two"]);
}

#[test]
fn a_rewind_that_lacks_an_object_changes_nothing() {
    let (fixture, _) = with_steps(true);
    let state = listing(&fixture.upper());
    let tree = fixture.checkpoints.tree(1).unwrap().unwrap();
    let only = tree.get(b"src/lib/a".as_slice()).unwrap();
    fs::remove_file(fixture.checkpoints.objects().join(only.to_string())).unwrap();
    let objects = fixture.checkpoints.objects();
    let request = RestoreRequest { upper: &fixture.upper(), objects: &objects, left_out: &["/proc"], tree: &tree };
    assert!(restore(&request, &Index::default()).unwrap_err().to_string().contains("src/lib/a"));
    assert_eq!(listing(&fixture.upper()), state);
}

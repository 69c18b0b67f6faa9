//! Tests of tracked files and detected changes.

use super::*;
use crate::protocol::workspace::{ChangeReport, TrackedFile};

fn changed(world: &World, hints: &[&str]) -> ChangeReport {
    let hints: Vec<_> = hints.iter().map(|it| (*it).to_owned()).collect();
    world.work().changed(&hints, &["node_modules".to_owned()], ALL, "shell").unwrap()
}

fn touched(world: &World, path: &str) -> Option<TrackedFile> {
    world.tracker.touched().into_iter().find(|it| it.path == path)
}

#[test]
fn w39_versions_count_changes_of_content() {
    let world = World::new();
    world.file("before", "x");
    assert_eq!(changed(&world, &[]), ChangeReport { complete: true, ..ChangeReport::default() });
    world.write("a", OpenMode::Create, "one").unwrap();
    assert_eq!(world.list("")[0].version, 1);
    assert_eq!(changed(&world, &[]).total, 0, "a tool's own change is not reported");
    world.file("a", "three");
    world.file("new/b", "");
    world.file("node_modules/c", "");
    fs::remove_file(world.path("before")).unwrap();
    let changes = changed(&world, &[]);
    assert_eq!(changes.created, ["new/b"]);
    assert_eq!(
        (changes.modified.as_slice(), changes.deleted.as_slice()),
        (&["a".to_owned()][..], &["before".to_owned()][..])
    );
    assert_eq!((changes.total, changes.complete), (3, true));
    assert_eq!(world.list("")[0].version, 2);
    assert_eq!(touched(&world, "a").unwrap().last_tool, "shell");
    assert_eq!(changed(&world, &[]).total, 0);
    world.remove("a").unwrap();
    let deleted = touched(&world, "a").unwrap();
    assert_eq!((deleted.deleted, deleted.version, deleted.seen), (true, 2, None));
    assert_eq!(changed(&world, &[]).total, 0);
    world.file("a", "three");
    assert_eq!(changed(&world, &[]).created, ["a"]);
    let again = touched(&world, "a").unwrap();
    assert_eq!((again.deleted, again.version), (false, 3));
}

#[test]
fn a_new_modification_time_alone_is_not_a_change() {
    let world = World::new();
    world.write("a", OpenMode::Create, "one").unwrap();
    assert_eq!(changed(&world, &[]).total, 0);
    fs::File::open(world.path("a")).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(changed(&world, &[]).total, 0);
    assert_eq!(touched(&world, "a").unwrap().version, 1);
}

#[test]
fn w40_a_hint_is_reported_only_if_the_file_exists() {
    let world = World::new();
    assert_eq!(changed(&world, &[]).total, 0);
    world.file("real.txt", "x");
    world.link("out", "../secret");
    let changes = changed(&world, &["nope", "real.txt", "out"]);
    assert_eq!((changes.created.as_slice(), changes.total), (&["real.txt".to_owned()][..], 1));
    let all: Vec<_> = world.tracker.touched().into_iter().map(|it| it.path).collect();
    assert_eq!(all, ["real.txt"]);
}

#[test]
fn files_beyond_the_bounds_are_checked_only_if_touched() {
    let world = World::new();
    for it in 0..15 {
        world.file(&format!("a/{it:02}"), "");
        world.file(&format!("b/{it:02}"), "");
    }
    world.file("c/far", "");
    world.file("c/touched", "");
    let bounds = SearchLimits { entries: 20, ..ALL };
    let scan = || world.work().changed(&[], &[], bounds, "shell").unwrap();
    world.read("c/touched").unwrap();
    assert_eq!((scan().total, scan().complete), (0, false));
    world.file("c/far", "changed");
    world.file("c/touched", "changed");
    world.file("a/00", "changed");
    assert_eq!(scan().modified, ["a/00", "c/touched"]);
    let few = SearchLimits { most: 2, ..ALL };
    let changes = world.work().changed(&[], &[], few, "shell").unwrap();
    assert_eq!((changes.total, changes.complete), (0, true), "files beyond the bounds are not reported: {changes:?}");
    for it in 0..5 {
        world.file(&format!("new{it}"), "");
    }
    let changes = world.work().changed(&[], &[], few, "shell").unwrap();
    assert_eq!((changes.created.as_slice(), changes.total), (&["new0".to_owned(), "new1".into()][..], 5));
}

#[test]
fn the_tracked_files_of_an_earlier_guest_are_restored() {
    let world = World::new();
    world.write("a", OpenMode::Create, "one").unwrap();
    world.write("a", OpenMode::Overwrite, "two").unwrap();
    let touched = world.tracker.touched();
    let later = World { tracker: FileTracker::default(), ..world };
    later.tracker.recall(touched.clone()).unwrap();
    assert_eq!(later.list("")[0].version, 2);
    assert_eq!(later.edit("a", "two", "three").unwrap().file.version, 3);
    let invalid = TrackedFile { sha256: Some("no hash".into()), ..touched[0].clone() };
    assert!(later.tracker.recall(vec![invalid]).is_err());
}

#[test]
fn the_least_recently_touched_file_is_evicted_first() {
    let world = World::new();
    let print = |it: u8| fingerprint::Print::of_content(&[it], &rustix::fs::stat(world.dir.path()).unwrap());
    for it in 0..10_002 {
        world.tracker.touch(format!("{it}").as_bytes(), &print(0), "t", tracker::ContentSource::Tool);
        world.tracker.touch(b"0", &print(0), "t", tracker::ContentSource::Tool);
    }
    let all = world.tracker.touched();
    assert_eq!(all.len(), 10_000);
    assert!(touched(&world, "0").is_some() && touched(&world, "1").is_none() && touched(&world, "10001").is_some());
}

#[tokio::test]
async fn a_replaced_file_stays_open_until_the_deferred_work_is_done() {
    let world = World::new();
    world.file("a", "old");
    let write = write::Write { path: "a", how: OpenMode::Overwrite, executable: None, seen: false, tool: "write_file" };
    world.work().write(&write, b"new").unwrap();
    assert_eq!(open_deleted_files(&world), 1, "the reply does not wait until the old file is closed");
    world.deferred.flush().await;
    assert_eq!(open_deleted_files(&world), 0);
}

fn open_deleted_files(world: &World) -> usize {
    let ours = fs::read_dir("/proc/self/fd").unwrap().filter_map(|it| fs::read_link(it.unwrap().path()).ok());
    ours.filter(|it| it.starts_with(world.path("")) && it.to_string_lossy().ends_with(" (deleted)")).count()
}

#[test]
fn appending_cannot_exceed_the_limit_of_a_readable_file() {
    let world = World::new();
    let almost = usize::try_from(crate::protocol::workspace::MAX_CONTENT).unwrap() - 1;
    world.file("a", "x".repeat(almost));
    world.read("a").unwrap();
    let append = |content: &str| {
        let unseen = write::Write { path: "a", how: OpenMode::Append, executable: None, seen: false, tool: "t" };
        world.work().write(&unseen, content.as_bytes()).map(|it| it.file.size)
    };
    assert_eq!(code(append("yy")), crate::protocol::workspace::WorkspaceErrorCode::TooLarge);
    assert_eq!(append("y").unwrap(), crate::protocol::workspace::MAX_CONTENT);
    assert_eq!(code(append("y")), crate::protocol::workspace::WorkspaceErrorCode::TooLarge);
}

#[test]
fn a_file_with_several_hard_links_is_counted_once() {
    let world = World::new();
    world.file("dir/a", "x".repeat(100_000));
    let measured = || match world.execute(WorkspaceOp::Measure { bounds: ALL }) {
        WorkspaceReply::Measured { bytes, complete: true } => bytes,
        other => panic!("{other:?}"),
    };
    let before = measured();
    for name in ["b", "c", "dir/d"] {
        fs::hard_link(world.path("dir/a"), world.path(name)).unwrap();
    }
    assert!(measured() - before < 50_000, "{before} {}", measured());
    world.file("e", "x".repeat(100_000));
    assert!(measured() - before >= 100_000);
}

//! File requests during concurrent changes by other users, and as users with limited rights.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Runs `act` repeatedly while `race/x` alternates between a directory and a link to a directory outside.
fn race(act: impl Fn(&World)) {
    // In memory, ten thousand writes need not wait for the disk.
    let w = world_in(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap());
    let (race, outside) = (w.path("race"), w.dir.path().join("outside"));
    fs::create_dir_all(race.join("dir")).unwrap();
    fs::write(race.join("dir/f"), "inside").unwrap();
    // Points outside both from the host's root and from the container's root.
    symlink(&outside, race.join("link")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for from in ["dir", "link"] {
                    if fs::rename(race.join(from), race.join("x")).is_ok() {
                        let _ = fs::rename(race.join("x"), race.join(from));
                    } else {
                        let _ = fs::remove_dir_all(race.join("x"));
                    }
                }
                let _ = fs::create_dir(race.join("dir"));
                let _ = fs::write(race.join("dir/f"), "inside");
                let _ = symlink(&outside, race.join("link"));
            }
        });
        (0..10_000).for_each(|_| act(&w));
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "outside/f");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
}

#[test]
fn swapping_a_directory_for_a_link_during_a_write_changes_no_file_outside() {
    race(|w| {
        let writing = w.files.put(&w.ids, &at("/race/x/f"), options(None, true, true));
        let _ = writing.and_then(|mut it| it.write(b"new").map(|()| it)).and_then(AtomicWriter::commit);
    });
}

#[test]
fn swapping_a_directory_for_a_link_during_a_removal_removes_no_file_outside() {
    race(|w| {
        let _ = w.files.remove(&w.ids, &at("/race/x/f"), true);
        let _ = w.files.remove(&w.ids, &at("/race/x"), true);
    });
}

#[test]
fn swapping_a_directory_for_a_link_during_a_read_reveals_no_file_outside() {
    race(|w| {
        let read = w.content(&at("/race/x/f")).unwrap_or_default();
        assert!(!read.contains("outside"), "{read}");
        let listed = w.files.list(&w.ids, &at("/race/x"), 10).map(|it| it.0.len()).unwrap_or_default();
        assert!(listed <= 1);
    });
}

#[test]
fn the_permissions_of_the_callers_user_apply() {
    if !geteuid().is_root() {
        return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
    }
    let w = World { ids: Ids { uid: 1234, gid: 1234, groups: vec![77] }, ..world() };
    fs::set_permissions(w.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(w.path("f"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(w.content(&at("/f")), Err(ErrorCode::Denied));
    assert_eq!(w.put(&at("/f"), true), Err(ErrorCode::Denied));
    assert_eq!(w.files.remove(&w.ids, &at("/d/sub"), true).unwrap_err().code, ErrorCode::Denied);
    assert_eq!(w.files.make_dir(&w.ids, &at("/d/x"), 0o755, true).unwrap_err().code, ErrorCode::Denied);
    chown(w.path("f"), Some(0), Some(77)).unwrap();
    assert_eq!(w.content(&at("/f")), Ok("root/f".to_owned()));

    chown(w.path("d"), Some(1234), Some(1234)).unwrap();
    let created = w.put(&at("/d/mine"), true).unwrap();
    assert_eq!((created.uid, created.gid), (1234, 1234));
    assert_eq!(fs::metadata(w.path("d/mine")).unwrap().uid(), 1234);
    assert_eq!(w.temporaries(), 0);

    let root = World { ids: me(), ..w };
    let replaced = root.put(&at("/d/mine"), true).unwrap();
    assert_eq!((replaced.uid, replaced.gid), (1234, 1234));
}

#[test]
fn a_write_does_not_follow_another_users_link_in_a_shared_directory() {
    if !geteuid().is_root() {
        return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
    }
    let w = world();
    fs::set_permissions(w.path("d"), fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("/f", w.path("d/trap")).unwrap();
    std::os::unix::fs::lchown(w.path("d/trap"), Some(1234), Some(1234)).unwrap();
    assert_eq!(w.put(&at("/d/trap"), true), Err(ErrorCode::Denied));
    assert_eq!(w.content(&at("/f")), Ok("root/f".to_owned()));
}

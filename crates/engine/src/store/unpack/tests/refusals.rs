//! Hostile and broken archives.

use std::path::Path;

use rustix::fs::lgetxattr;

use super::*;

#[test]
fn names_that_leave_the_layer_refuse_the_archive() {
    for path in ["/etc/passwd", "../x", "a/../../x", "..", ""] {
        let refusal = Tar::default().file("before", "").file(path, "x").refusal();
        assert!(matches!(refusal, LayerRefusal::Entry { .. }), "{path}: {refusal:?}");
    }
}

#[test]
fn nothing_is_made_through_a_link_of_the_archive() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    for tar in [
        Tar::default().symlink("a", target).file("a/x", "x"),
        Tar::default().symlink("a", target).dir("a/b"),
        Tar::default().symlink("a", target).symlink("b", "a").hard_link("b/x", "f"),
        Tar::default().dir("d").symlink("d/a", "..").file("d/a/x", "x"),
        Tar::default().file("f", "").file("f/x", "x"),
        Tar::default().symlink("a", target).file("a/.wh.x", ""),
        Tar::default().symlink("a", target).file("a/.wh..wh..opq", ""),
    ] {
        let refusal = tar.refusal();
        assert!(matches!(&refusal, LayerRefusal::Entry { .. }), "{refusal:?}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_later_entry_replaces_a_link_and_not_its_target() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("target");
    std::fs::write(&target, "kept").unwrap();
    let (dir, report) = Tar::default().symlink("a", target.to_str().unwrap()).file("a", "new").unpack();
    report.unwrap();
    assert_eq!((read(&dir, "a"), std::fs::read_to_string(target).unwrap()), ("new".into(), "kept".into()));
    let (dir, report) =
        Tar::default().symlink("a", outside.path().to_str().unwrap()).dir("a").file("a/x", "x").unpack();
    report.unwrap();
    assert_eq!(read(&dir, "a/x"), "x");
    assert!(!outside.path().join("x").exists());
}

#[test]
fn hard_links_lead_to_files_of_the_same_layer_alone() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    for tar in [
        Tar::default().hard_link("a", "missing"),
        Tar::default().hard_link("a", outside.path().to_str().unwrap()),
        Tar::default().hard_link("a", "../x"),
        Tar::default().hard_link("a", "a"),
        Tar::default().hard_link("a", ""),
        Tar::default().hard_link("a", "."),
        Tar::default().dir("d").hard_link("a", "d"),
        Tar::default().symlink("s", "/etc").hard_link("a", "s/passwd"),
        Tar::default().dir("d").file("d/f", "").hard_link("d", "d/f"),
    ] {
        let refusal = tar.refusal();
        assert!(matches!(refusal, LayerRefusal::Entry { .. }), "{refusal:?}");
    }
    // A link to a symbolic link is one to the link itself.
    let (dir, report) = Tar::default().symlink("s", "/etc/passwd").hard_link("a", "s").unpack();
    report.unwrap();
    assert_eq!(std::fs::read_link(dir.path().join("a")).unwrap(), Path::new("/etc/passwd"));
}

#[test]
fn attributes_for_the_overlay_refuse_the_archive_and_foreign_ones_are_left_out() {
    if !coracle_skips::has_root() {
        return;
    }
    for name in ["trusted.overlay.opaque", "trusted.x", "user.overlay.redirect", "user.overlay.opaque"] {
        let refusal = Tar::default().dir("d").xattr(name, b"y").refusal();
        assert!(matches!(refusal, LayerRefusal::Entry { .. }), "{refusal:?}");
    }
    let (dir, report) = Tar::default().file("f", "").xattr("security.selinux", b"label").unpack();
    assert_eq!(report.unwrap().left_out, 1);
    assert!(lgetxattr(dir.path().join("f"), "security.selinux", &mut [0u8; 64]).is_err());
}

#[test]
fn bombs_end_at_their_limits() {
    let large = EntryKind::File { size: 1 << 40, extents: None };
    let huge = Tar::default().with("f", large);
    let mut bytes = huge.0[0].0.path.clone();
    bytes.clear();
    let mut tar = Writer::new(&mut bytes);
    tar.write_entry(&huge.0[0].0).unwrap();
    let limit = |bytes: &[u8]| match unpack_bytes(bytes, OPTIONS).1 {
        Err(UnpackError::Refused(LayerRefusal::TooLarge { what, .. })) => what,
        Err(UnpackError::Refused(LayerRefusal::FileTooLarge { .. })) => "bytes".into(),
        other => panic!("{other:?}"),
    };
    assert_eq!(limit(&bytes), "bytes");
    let many = (0..=1000).fold(Tar::default(), |tar, at| tar.file(&format!("f{at}"), ""));
    assert_eq!(limit(&many.bytes()), "entries");
    assert_eq!(limit(&Tar::default().file(&"d/".repeat(64), "").file(&"d/".repeat(65), "").bytes()), "parts of a path");
    let mut extension = tar::Header::new_ustar();
    extension.set_entry_type(tar::EntryType::XHeader);
    extension.set_size(1 << 40);
    extension.set_cksum();
    assert_eq!(limit(extension.as_bytes()), "bytes in an extension header");
    // A hole costs nothing on the disk, and as much as its size when it is read.
    let mut sparse = tar::Header::new_gnu();
    sparse.set_entry_type(tar::EntryType::GNUSparse);
    sparse.set_path("hole").unwrap();
    sparse.as_gnu_mut().unwrap().set_real_size(1 << 32);
    sparse.set_mode(0o644);
    sparse.set_cksum();
    assert_eq!(limit(sparse.as_bytes()), "bytes");
}

#[test]
fn a_hole_without_end_is_hashed_until_the_work_is_given_up() {
    let mut sparse = tar::Header::new_gnu();
    sparse.set_entry_type(tar::EntryType::GNUSparse);
    sparse.set_path("hole").unwrap();
    sparse.as_gnu_mut().unwrap().set_real_size(1 << 60);
    sparse.set_mode(0o644);
    sparse.set_cksum();
    let cancel = CancelFlag::new().unwrap();
    let options = UnpackOptions { max_bytes: u64::MAX, cancel: cancel.clone(), ..OPTIONS };
    cancel.cancel();
    let ended = unpack_bytes(sparse.as_bytes(), options).1;
    assert!(matches!(&ended, Err(UnpackError::Io(err)) if err.to_string() == "it was cancelled"), "{ended:?}");
}

/// Each entry of such an archive has 512 bytes, and makes as many directories as its path has parts.
#[test]
fn directories_that_an_archive_only_implies_count_as_entries() {
    let deep = (0..20).fold(Tar::default(), |tar, at| tar.file(&format!("{at}/{}f", "a/".repeat(60)), ""));
    let refusal = deep.refusal();
    assert_eq!(refusal, LayerRefusal::TooLarge { what: "entries".into(), limit: 1000 });
    let (_dir, report) = unpack_bytes(&deep.bytes(), UnpackOptions { max_entries: 20 * 62, ..OPTIONS });
    assert_eq!(report.unwrap().implied.len(), 1 + 20 * 61);
}

#[test]
fn paths_that_stay_in_memory_are_limited() {
    let long = |at: usize| format!("{at}/{}", "long/".repeat(20));
    let few = UnpackOptions { max_path_bytes: 900, ..OPTIONS };
    let implied = (0..10).fold(Tar::default(), |tar, at| tar.file(&format!("{}f", long(at)), ""));
    let directories = (0..10).fold(Tar::default().dir("d"), |tar, at| tar.dir(&format!("d/{}", "n".repeat(90 + at))));
    let hidden =
        (0..10).fold(Tar::default().dir("d"), |tar, at| tar.file(&format!("d/.wh.{}", "n".repeat(90 + at)), ""));
    let links = (0..10).fold(Tar::default().file("f", ""), |tar, at| tar.hard_link(&"n".repeat(90 + at), "f"));
    for tar in [implied, directories, hidden, links] {
        let refused = unpack_bytes(&tar.bytes(), few.clone()).1;
        assert!(
            matches!(&refused, Err(UnpackError::Refused(LayerRefusal::TooLarge { what, .. })) if what == "bytes of paths"),
            "{refused:?}"
        );
        tar.unpack().1.unwrap();
    }
}

#[test]
fn broken_archives_are_refused() {
    let whole = Tar::default().file("a", &"x".repeat(3000)).bytes();
    for cut in [1, 511, 513, 700, 1500, 3500, 4000] {
        let refusal = unpack_bytes(&whole[..cut], OPTIONS).1;
        assert!(matches!(refusal, Err(UnpackError::Refused(LayerRefusal::Unreadable(_)))), "{cut}: {refusal:?}");
    }
    let mut wrong = whole;
    wrong[0] ^= 1;
    assert!(matches!(unpack_bytes(&wrong, OPTIONS).1, Err(UnpackError::Refused(LayerRefusal::Unreadable(_)))));
    assert!(unpack_bytes(&[b'x'; 4096], OPTIONS).1.is_err());
    unpack_bytes(&[0; 1024], OPTIONS).1.unwrap();
    unpack_bytes(&[], OPTIONS).1.unwrap();
}

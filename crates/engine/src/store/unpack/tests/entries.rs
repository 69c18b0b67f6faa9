//! What archives unpack to: attributes, whiteouts and entries that replace others.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use coracle_archive::tar::Device;
use rustix::fs::{getxattr, lgetxattr};

use super::*;

fn is_whiteout(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|it| it.file_type().is_char_device() && it.rdev() == 0)
}

fn is_opaque(path: &Path) -> bool {
    getxattr(path, "trusted.overlay.opaque", &mut [0u8; 64]).is_ok()
}

#[test]
fn every_kind_of_entry_has_its_attributes() {
    if !coracle_skips::has_root() {
        return;
    }
    let capability = b"\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
    let tar = Tar::default()
        .dir("./")
        .mode(0o1751)
        .dir("d")
        .mode(0o2750)
        .owner(5, 6)
        .file("d/set", "uid")
        .mode(0o6755)
        .owner(7, 8)
        .file("d/capable", "x")
        .xattr("security.capability", capability)
        .xattr("user.note", b"a\nb\0c")
        .symlink("d/link", "/etc/passwd")
        .owner(9, 10)
        .hard_link("other", "d/set")
        .hard_link("third", "/d/set")
        .with("null", EntryKind::CharDevice(Device { major: 1, minor: 300 }))
        .mode(0o666)
        .with("disk", EntryKind::BlockDevice(Device { major: 259, minor: 1 }))
        .with("pipe", EntryKind::Fifo);
    let (dir, report) = tar.unpack();
    let report = report.unwrap();
    assert_eq!((report.left_out, report.implied.len(), report.opaque), (0, 0, false));
    let stat = |path: &str| dir.path().join(path).symlink_metadata().unwrap();
    assert_eq!((stat(".").mode() & 0o7777, stat("d").mode() & 0o7777), (0o1751, 0o2750));
    assert_eq!((stat("d").uid(), stat("d").gid(), stat("d").mtime()), (5, 6, 1_000_000_000));
    let set = stat("d/set");
    assert_eq!((set.mode() & 0o7777, set.uid(), set.gid(), set.nlink(), set.mtime_nsec()), (0o6755, 7, 8, 3, 5));
    assert_eq!((stat("other").ino(), stat("third").ino()), (set.ino(), set.ino()));
    assert_eq!((stat("d/link").uid(), stat("d/link").mtime()), (9, 1_000_000_000));
    assert_eq!(std::fs::read_link(dir.path().join("d/link")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(stat("null").rdev(), rustix::fs::makedev(1, 300));
    assert_eq!(stat("null").mode() & 0o7777, 0o666);
    assert!(stat("disk").file_type().is_block_device() && stat("pipe").file_type().is_fifo());
    let value = |name: &str| {
        let mut value = [0; 64];
        let length = lgetxattr(dir.path().join("d/capable"), name, &mut value[..]).unwrap();
        value[..length].to_vec()
    };
    assert_eq!((value("security.capability"), value("user.note")), (capability.to_vec(), b"a\nb\0c".to_vec()));
}

#[test]
fn later_entries_replace_earlier_ones() {
    let tar = Tar::default()
        .file("a", "one")
        .file("a", "two")
        .dir("b")
        .dir("b/c")
        .file("b/c/x", "x")
        .file("b", "file now")
        .file("c", "file")
        .dir("c")
        .file("c/x", "x")
        .file("e", "e")
        .hard_link("f", "e")
        .file("e", "new")
        .dir("g")
        .file("g/x", "stays")
        .dir("g")
        .mode(0o700);
    let (dir, report) = tar.unpack();
    report.unwrap();
    for (path, text) in [("a", "two"), ("b", "file now"), ("c/x", "x"), ("e", "new"), ("f", "e"), ("g/x", "stays")] {
        assert_eq!(read(&dir, path), text, "{path}");
    }
    assert_eq!(dir.path().join("g").metadata().unwrap().mode() & 0o777, 0o700);
}

#[test]
fn whiteouts_hide_lower_layers_and_nothing_of_their_own() {
    if !coracle_skips::has_root() {
        return;
    }
    let tar = Tar::default()
        .file(".wh.gone", "")
        .file("d/.wh.gone", "")
        .file(".wh.before", "")
        .file("before", "mine")
        .file("after", "mine")
        .file(".wh.after", "")
        .file(".wh.dir", "")
        .file("dir/x", "mine")
        .dir("other")
        .file("other/x", "mine")
        .file(".wh.other", "")
        .file("opaque/x", "mine")
        .file("opaque/.wh..wh..opq", "")
        .file(".wh..wh.plnk", "")
        .file(".wh.back", "")
        .file("back", "file")
        .dir("back");
    let (dir, report) = tar.unpack();
    let report = report.unwrap();
    let at = |path: &str| dir.path().join(path);
    assert!(is_whiteout(&at("gone")) && is_whiteout(&at("d/gone")));
    for path in ["before", "after", "dir/x", "other/x", "opaque/x"] {
        assert_eq!(read(&dir, path), "mine", "{path}");
    }
    for path in ["dir", "other", "opaque", "back"] {
        assert!(is_opaque(&at(path)), "{path}");
    }
    assert!(!is_opaque(&at("d")) && !report.opaque && !at(".wh..wh.plnk").exists());
    assert_eq!(report.implied, ["/", "d", "dir", "opaque"]);
    let (_dir, report) = Tar::default().file(".wh..wh..opq", "").unpack();
    assert!(report.unwrap().opaque);
}

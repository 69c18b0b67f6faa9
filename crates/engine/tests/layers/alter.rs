//! Changes that layers are made of: every kind of entry, odd names, and what hides lower layers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};

/// `cap_net_raw=ep`, with a line break among its bytes: `cap_dac_override` and `cap_fowner` make up 0x0a.
const CAPABILITY: &[u8] = b"\x01\x00\x00\x02\x0a\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";

/// The first changes.
pub(crate) fn first(root: &Path) {
    for dir in ["kept", "emptied", "replaced", "opaque/sub", "becomes-file", "deep/er/and/deeper", "sticky"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
        std::fs::write(root.join(dir).join("old"), dir).unwrap();
    }
    set_mode(&root.join("sticky"), 0o1777);
    set_mode(&root.join("deep/er"), 0o2751);
    std::fs::write(root.join("becomes-dir"), "file").unwrap();
    std::fs::write(root.join("gone"), "gone").unwrap();
    std::fs::write(root.join("suid"), "suid").unwrap();
    chown(root.join("suid"), Some(1234), Some(4_000_000)).unwrap();
    set_mode(&root.join("suid"), 0o6755);
    std::fs::write(root.join("capable"), "capable").unwrap();
    setxattr(root.join("capable"), "security.capability", CAPABILITY, XattrFlags::empty()).unwrap();
    setxattr(root.join("kept"), "user.note", b"a\nb", XattrFlags::empty()).unwrap();
    for name in ["one", "kept/two", "deep/er/three"] {
        let _ = std::fs::write(root.join("one"), "three names");
        let _ = std::fs::hard_link(root.join("one"), root.join(name));
    }
    links(root);
    nodes(root);
    odd_names(root);
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"far", 5_000_000).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
    std::fs::File::open(root.join("kept/old")).unwrap().set_modified(old).unwrap();
}

fn links(root: &Path) {
    for (name, target) in
        [("loop-a", "loop-b"), ("loop-b", "loop-a"), ("self", "self"), ("up", "../../../../etc/passwd")]
    {
        symlink(target, root.join(name)).unwrap();
    }
    symlink("t".repeat(1000), root.join("long-target")).unwrap();
    symlink("kept", root.join("dir-link")).unwrap();
    lchown(root.join("dir-link"), Some(7), Some(8)).unwrap();
}

fn nodes(root: &Path) {
    let mode = Mode::from_raw_mode(0o640);
    for (name, kind, device) in [
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("large-numbers", FileType::CharacterDevice, makedev(511, 70_000)),
        ("disk", FileType::BlockDevice, makedev(259, 1)),
        ("pipe", FileType::Fifo, 0),
    ] {
        mknodat(CWD, root.join(name), kind, mode, device).unwrap();
    }
}

fn odd_names(root: &Path) {
    let dir = root.join("odd");
    std::fs::create_dir(&dir).unwrap();
    let long = "n".repeat(255);
    for name in [
        &b"line\nbreak"[..],
        b"space at end ",
        b"\xff\xfe not text",
        "\u{fc}ml\u{e4}ut \u{1f980}".as_bytes(),
        b"back\\slash",
        b"-dash",
        b"...",
        b"colon:name",
        long.as_bytes(),
    ] {
        std::fs::write(dir.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let deep = (0..12).fold(dir, |dir, at| dir.join(format!("{at}-{}", "d".repeat(40))));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("file"), "deep").unwrap();
}

/// Changes of what the first ones made.
pub(crate) fn second(root: &Path) {
    std::fs::remove_file(root.join("gone")).unwrap();
    std::fs::remove_file(root.join("emptied/old")).unwrap();
    std::fs::remove_dir_all(root.join("replaced")).unwrap();
    std::fs::create_dir(root.join("replaced")).unwrap();
    std::fs::write(root.join("replaced/new"), "new").unwrap();
    std::fs::remove_dir_all(root.join("opaque")).unwrap();
    std::fs::create_dir_all(root.join("opaque/sub")).unwrap();
    std::fs::remove_dir_all(root.join("becomes-file")).unwrap();
    std::fs::write(root.join("becomes-file"), "now a file").unwrap();
    std::fs::remove_file(root.join("becomes-dir")).unwrap();
    std::fs::create_dir(root.join("becomes-dir")).unwrap();
    std::fs::remove_dir_all(root.join("deep/er/and")).unwrap();
    std::fs::write(root.join("deep/er/new"), "in a directory that was there").unwrap();
    set_mode(&root.join("kept"), 0o700);
    std::fs::remove_file(root.join("loop-a")).unwrap();
    std::fs::write(root.join("loop-a"), "no loop").unwrap();
    std::fs::remove_file(root.join("pipe")).unwrap();
    std::fs::rename(root.join("odd/-dash"), root.join("odd/moved")).unwrap();
}

/// What is back again on top of whiteouts.
pub(crate) fn third(root: &Path) {
    std::fs::write(root.join("gone"), "back").unwrap();
    std::fs::create_dir_all(root.join("deep/er/and")).unwrap();
    std::fs::write(root.join("replaced/old"), "back").unwrap();
    std::fs::remove_dir_all(root.join("becomes-dir")).unwrap();
    std::fs::remove_file(root.join("loop-b")).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

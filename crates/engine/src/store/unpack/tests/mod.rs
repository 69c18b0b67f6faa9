//! Hostile and odd archives.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{getxattr, lgetxattr};
use tempfile::TempDir;

use super::super::export::CanonicalDigest;
use super::*;
use crate::archive::{Device, Entry, EntryKind, FileTime, TarWriter, Xattr};

const OPTIONS: UnpackOptions = UnpackOptions {
    overlay: OverlayForm::Trusted,
    hash_contents: true,
    max_bytes: 1 << 20,
    max_entries: 1000,
    max_depth: 64,
};

/// An archive made of parts, each entry with its content.
#[derive(Default)]
pub(crate) struct Tar(Vec<(Entry, Vec<u8>)>);

impl Tar {
    pub(crate) fn with(mut self, path: &str, kind: EntryKind) -> Self {
        let mtime = FileTime { seconds: 1_000_000_000, nanoseconds: 5 };
        let entry = Entry { path: path.into(), kind, mode: 0o644, uid: 0, gid: 0, mtime, xattrs: Vec::new() };
        self.0.push((entry, Vec::new()));
        self
    }

    pub(crate) fn file(mut self, path: &str, content: &str) -> Self {
        self = self.with(path, EntryKind::File { size: content.len() as u64, extents: None });
        self.last().1 = content.into();
        self
    }

    pub(crate) fn dir(self, path: &str) -> Self {
        self.with(path, EntryKind::Directory).mode(0o755)
    }

    fn symlink(self, path: &str, target: &str) -> Self {
        self.with(path, EntryKind::Symlink(target.into()))
    }

    fn hard_link(self, path: &str, target: &str) -> Self {
        self.with(path, EntryKind::HardLink(target.into()))
    }

    pub(crate) fn mode(mut self, mode: u32) -> Self {
        self.last().0.mode = mode;
        self
    }

    pub(crate) fn owner(mut self, uid: u32, gid: u32) -> Self {
        (self.last().0.uid, self.last().0.gid) = (uid, gid);
        self
    }

    fn xattr(mut self, name: &str, value: &[u8]) -> Self {
        self.last().0.xattrs.push(Xattr { name: name.into(), value: value.into() });
        self
    }

    fn last(&mut self) -> &mut (Entry, Vec<u8>) {
        self.0.last_mut().expect("an entry was added")
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut tar = TarWriter::new(Vec::new());
        for (entry, content) in &self.0 {
            tar.write_entry(entry).unwrap();
            tar.write_content(content).unwrap();
        }
        tar.finish().unwrap()
    }

    fn unpack(&self) -> (TempDir, Result<UnpackReport>) {
        unpack_bytes(&self.bytes(), OPTIONS)
    }

    /// The refusal of the archive.
    #[track_caller]
    fn refusal(&self) -> LayerRefusal {
        match self.unpack().1 {
            Err(UnpackError::Refused(refusal)) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }
}

fn unpack_bytes(bytes: &[u8], options: UnpackOptions) -> (TempDir, Result<UnpackReport>) {
    let dir = tempfile::tempdir().unwrap();
    let into = File::open(dir.path()).unwrap();
    let report = unpack(bytes, into.into(), options);
    (dir, report)
}

fn read(dir: &TempDir, path: &str) -> String {
    std::fs::read_to_string(dir.path().join(path)).unwrap()
}

fn is_whiteout(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|it| it.file_type().is_char_device() && it.rdev() == 0)
}

fn is_opaque(path: &Path) -> bool {
    getxattr(path, "trusted.overlay.opaque", &mut [0u8; 64]).is_ok()
}

#[test]
fn every_kind_of_entry_has_its_attributes() {
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
fn whiteouts_hide_lower_layers_and_nothing_of_their_own() {
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
fn attributes_for_the_overlay_refuse_the_archive_and_foreign_ones_are_left_out() {
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
    let mut tar = TarWriter::new(&mut bytes);
    tar.write_entry(&huge.0[0].0).unwrap();
    let limit = |bytes: &[u8]| match unpack_bytes(bytes, OPTIONS).1 {
        Err(UnpackError::Refused(LayerRefusal::TooLarge { what, .. })) => what,
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

/// A file with holes, in each of the forms that GNU tar writes.
#[test]
fn files_with_holes_keep_them() {
    let source = tempfile::tempdir().unwrap();
    let mut file = File::create(source.path().join("hole")).unwrap();
    file.set_len(300_000).unwrap();
    for at in [0, 100_000, 200_000] {
        use std::os::unix::fs::FileExt as _;
        file.write_all_at(b"content", at).unwrap();
    }
    file.flush().unwrap();
    let content = std::fs::read(source.path().join("hole")).unwrap();
    for format in [
        &["--format=gnu"][..],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=pax", "--sparse-version=1.0"],
    ] {
        let tar = source.path().join("tar");
        let mut words: Vec<&str> =
            vec!["--sparse", "-C", source.path().to_str().unwrap(), "-cf", tar.to_str().unwrap()];
        words.extend(format);
        words.push("hole");
        run_tar(&words);
        let (dir, report) = unpack_bytes(&std::fs::read(&tar).unwrap(), OPTIONS);
        report.unwrap();
        assert!(std::fs::read(dir.path().join("hole")).unwrap() == content, "{format:?}");
        let blocks = dir.path().join("hole").metadata().unwrap().blocks();
        assert!(blocks * 512 < 100_000, "{format:?}: {blocks} blocks");
    }
}

#[expect(clippy::disallowed_methods, reason = "the test's own judge")]
fn run_tar(words: &[&str]) {
    let status = std::process::Command::new("tar").args(words).status().unwrap();
    assert!(status.success(), "{words:?}");
}

#[test]
fn gnu_tar_s_long_names_are_read() {
    let source = tempfile::tempdir().unwrap();
    let name = format!("{}/{}", "d".repeat(150), "f".repeat(200));
    std::fs::create_dir(source.path().join("d".repeat(150))).unwrap();
    std::fs::write(source.path().join(&name), "long").unwrap();
    std::os::unix::fs::symlink("t".repeat(300), source.path().join("link")).unwrap();
    for format in ["--format=gnu", "--format=pax", "--format=posix"] {
        let tar = tempfile::NamedTempFile::new().unwrap();
        run_tar(&[format, "-C", source.path().to_str().unwrap(), "-cf", tar.path().to_str().unwrap(), "."]);
        let (dir, report) = unpack_bytes(&std::fs::read(tar.path()).unwrap(), OPTIONS);
        assert_eq!(report.unwrap().implied, Vec::<String>::new());
        assert_eq!(read(&dir, &name), "long");
        assert_eq!(std::fs::read_link(dir.path().join("link")).unwrap().as_os_str().len(), 300);
    }
}

/// The digests that are computed while unpacking are those of what lies on the disk.
#[test]
fn the_report_s_digests_are_those_of_the_files() {
    let tar = Tar::default()
        .dir("./")
        .file("a", "one")
        .file("a", "another")
        .hard_link("0", "a")
        .file("empty", "")
        .file(".wh.gone", "")
        .file("d/.wh..wh..opq", "");
    let (dir, report) = tar.unpack();
    let root = File::open(dir.path()).unwrap();
    let mut sink = DigestSink::new(ContentDigests::Read);
    walk(root.as_fd(), &WalkOptions::all(OverlayForm::Trusted), &mut sink).unwrap();
    assert_eq!(report.unwrap().digests, sink.finish());
    std::fs::write(dir.path().join("a"), "anothex").unwrap();
    let mut sink = DigestSink::new(ContentDigests::Read);
    walk(root.as_fd(), &WalkOptions::all(OverlayForm::Trusted), &mut sink).unwrap();
    assert_ne!(unpack_bytes(&tar.bytes(), OPTIONS).1.unwrap().digests.content, sink.finish().content);
}

mod packing {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = (String, EntryKind, Vec<u8>)> {
        let name = prop::sample::select(vec!["a", "b", "ab", "a.b", "a b", "\u{e9}", "x\ny"]);
        let path = prop::collection::vec(name.clone(), 1..4).prop_map(|it| it.join("/"));
        let kind = (0..8u8, name, prop::collection::vec(any::<u8>(), 0..700));
        (path, kind).prop_map(|(path, (kind, other, content))| match kind {
            0 | 1 => (path, EntryKind::File { size: content.len() as u64, extents: None }, content),
            2 => (path, EntryKind::Directory, vec![]),
            3 => (path, EntryKind::Symlink(other.into()), vec![]),
            4 => (path, EntryKind::HardLink(other.into()), vec![]),
            5 => (format!(".wh.{other}"), EntryKind::File { size: 0, extents: None }, vec![]),
            6 => (format!("{path}/.wh..wh..opq"), EntryKind::File { size: 0, extents: None }, vec![]),
            _ => (path, EntryKind::CharDevice(Device { major: 1, minor: 3 }), vec![]),
        })
    }

    proptest! {
        /// What is unpacked from a canonical archive has that archive, whatever was unpacked before.
        #[test]
        fn is_stable(entries in prop::collection::vec((entry(), any::<[u16; 3]>(), any::<i32>()), 0..12)) {
            let mut tar = Tar::default();
            for ((path, kind, content), [mode, uid, gid], time) in entries {
                tar = tar.with(&path, kind).mode(u32::from(mode) & 0o7777).owner(uid.into(), gid.into());
                tar.last().1 = content;
                tar.last().0.mtime = FileTime { seconds: time.into(), nanoseconds: time.unsigned_abs() % 1_000_000_000 };
            }
            // Many are refused: an entry in a file, a link to nothing.
            let (dir, report) = tar.unpack();
            if let Ok(report) = report {
                let root = File::open(dir.path()).unwrap();
                let packed = super::super::super::export::pack(&root, OverlayForm::Trusted, Vec::new()).unwrap();
                let (again, second) = unpack_bytes(&packed, OPTIONS);
                let second = second.unwrap();
                prop_assert_eq!(&report.digests, &second.digests);
                prop_assert_eq!(second.implied, Vec::<String>::new());
                let root = File::open(again.path()).unwrap();
                let digest = CanonicalDigest::from_files(&root, OverlayForm::Trusted).unwrap();
                prop_assert_eq!(digest.bytes, packed.len() as u64);
            } else {
                prop_assert!(matches!(report, Err(UnpackError::Refused(_))), "{:?}", report);
            }
        }
    }
}

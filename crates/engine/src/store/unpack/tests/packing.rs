//! What is unpacked is packed again, and stays the same.

use std::fs::File;

use coracle_archive::tar::Device;
use proptest::prelude::*;

use super::super::super::export::{CanonicalDigest, PackSource, pack};
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

fn source(files: &File) -> PackSource<'_> {
    PackSource { files, overlay: OverlayForm::Trusted, max_bytes: u64::MAX }
}

proptest! {
    /// What is unpacked from a canonical archive has that archive, whatever was unpacked before.
    #[test]
    fn is_stable(entries in prop::collection::vec((entry(), any::<[u16; 3]>(), any::<i32>()), 0..12)) {
        if !coracle_skips::has_root() {
            return Ok(());
        }
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
            let packed = pack(source(&root), Vec::new()).unwrap();
            let (again, second) = unpack_bytes(&packed, OPTIONS);
            let second = second.unwrap();
            prop_assert_eq!(&report.digests, &second.digests);
            prop_assert_eq!(second.implied, Vec::<String>::new());
            let root = File::open(again.path()).unwrap();
            let digest = CanonicalDigest::from_files(source(&root)).unwrap();
            prop_assert_eq!(digest.bytes, packed.len() as u64);
        } else {
            prop_assert!(matches!(report, Err(UnpackError::Refused(_))), "{:?}", report);
        }
    }
}

//! Archives made entry by entry, and what they unpack to.

mod digests;
mod entries;
mod gnu_tar;
mod packing;
mod refusals;

use std::fs::File;
use std::io::Write as _;

use coracle_archive::tar::{EntryKind, FileTime, TarEntry, Writer, Xattr};
use tempfile::TempDir;

use super::*;

const OPTIONS: UnpackOptions = UnpackOptions {
    overlay: OverlayForm::Trusted,
    hash_contents: true,
    max_bytes: 1 << 20,
    max_entries: 1000,
    max_depth: 64,
    max_path_bytes: 1 << 20,
    cancel: CancelFlag::NEVER,
};

/// An archive made of parts, each entry with its content.
#[derive(Default)]
pub(crate) struct Tar(Vec<(TarEntry, Vec<u8>)>);

impl Tar {
    pub(crate) fn with(mut self, path: &str, kind: EntryKind) -> Self {
        let mtime = FileTime { seconds: 1_000_000_000, nanoseconds: 5 };
        let entry = TarEntry { path: path.into(), kind, mode: 0o644, uid: 0, gid: 0, mtime, xattrs: Vec::new() };
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

    fn last(&mut self) -> &mut (TarEntry, Vec<u8>) {
        self.0.last_mut().expect("an entry was added")
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut tar = Writer::new(Vec::new());
        for (entry, content) in &self.0 {
            tar.write_entry(entry).unwrap();
            tar.write_all(content).unwrap();
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

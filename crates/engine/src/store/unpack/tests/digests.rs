//! Digests of the report.

use std::fs::File;
use std::os::fd::AsFd as _;

use super::*;

/// The digests computed while unpacking match the content on disk.
#[test]
fn the_report_s_digests_are_those_of_the_files() {
    if !coracle_skips::has_root() {
        return;
    }
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

//! Many files at once, and their digests.

use super::*;
use crate::protocol::workspace::{FileDigest, StagedFile};

const STAGE: &str = ".coracle-0123456789abcdef.tmp";

fn files(files: &[(&str, u32, &str, bool)]) -> Vec<StagedFile> {
    let staged =
        |it: &(&str, u32, &str, bool)| StagedFile { path: it.0.into(), mode: it.1, content: it.2.into(), more: it.3 };
    files.iter().map(staged).collect()
}

fn sums(world: &World, most: u32) -> (Vec<FileDigest>, usize) {
    let (mut all, mut from, mut pages) = (Vec::new(), None, 0);
    loop {
        pages += 1;
        match world.act(WorkspaceOp::Sums { after: from, bounds: SearchLimits { most, ..ALL } }) {
            WorkspaceReply::Summed { entries, after, complete: true } => {
                all.extend(entries);
                match after {
                    Some(after) => from = Some(after),
                    None => return (all, pages),
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn files_come_into_place_together() {
    let world = World::new();
    world.file("there/kept", "kept");
    let work = world.work();
    work.stage(STAGE, true, &files(&[("a", 0o600, "on", false), ("there/x/b", 0o4777, "b", false)])).unwrap();
    work.stage(STAGE, false, &files(&[("a", 0o444, "e", true), ("there/c", 0o644, "", false)])).unwrap();
    assert_eq!(world.list("").len(), 1, "nothing is seen before it is in place");
    work.unstage(STAGE).unwrap();
    assert_eq!([world.has("a"), world.has("there/x/b"), world.has("there/kept")], ["one", "b", "kept"]);
    let mode = |path: &str| fs::metadata(world.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode("a"), mode("there/x/b"), mode("there/c")], [0o444, 0o755, 0o644]);
    assert!(!world.path(STAGE).exists());
}

#[test]
fn what_was_staged_before_goes_and_nothing_leaves_the_stage() {
    let world = World::new();
    world.file(".coracle-aaaaaaaaaaaaaaaa.tmp/half", "half");
    let work = world.work();
    work.stage(STAGE, true, &files(&[])).unwrap();
    assert!(!world.path(".coracle-aaaaaaaaaaaaaaaa.tmp").exists());
    for odd in ["../x", "/x", "a//b", "a/./b", "", "a/..", "a\0"] {
        assert!(work.stage(STAGE, false, &files(&[(odd, 0o644, "x", false)])).is_err(), "{odd:?}");
    }
    world.link(&format!("{STAGE}/out"), "../..");
    assert!(work.stage(STAGE, false, &files(&[("out/x", 0o644, "x", false)])).is_err());
    assert!(work.stage(STAGE, false, &files(&[("out", 0o644, "x", false)])).is_err());
    for odd in ["..", "a", ".coracle-x.tmp", ""] {
        assert!(work.stage(odd, true, &files(&[])).is_err() && work.unstage(odd).is_err(), "{odd:?}");
    }
    assert_eq!(fs::read_dir(world.dir.path()).unwrap().count(), 2, "the workspace and the secret");
}

#[test]
fn every_file_is_told_once_however_many_come_at_a_time() {
    let world = World::new();
    for path in ["a", "b/c", "b/d/e", "b-", "z"] {
        world.file(path, path);
    }
    world.link("b/l", "/etc/passwd");
    let (whole, _) = sums(&world, 1000);
    let told: Vec<_> = whole.iter().map(|it| (it.path.as_str(), it.sha256.is_some(), it.target.as_deref())).collect();
    let file = |path| (path, true, None);
    assert_eq!(
        told,
        [file("a"), file("b/c"), file("b/d/e"), ("b/l", false, Some("/etc/passwd")), file("b-"), file("z")]
    );
    let (pieces, pages) = sums(&world, 1);
    assert_eq!((pieces, pages), (whole, 6));
}

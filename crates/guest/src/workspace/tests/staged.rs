//! Tests of staged files and digests.

use super::*;
use crate::protocol::workspace::{FileDigest, StagedFile};

const STAGE: &str = ".coracle-0123456789abcdef.tmp";

fn files(files: &[(&str, u32, &str, bool)]) -> Vec<StagedFile> {
    let staged = |file: &(&str, u32, &str, bool)| StagedFile {
        path: file.0.into(),
        mode: file.1,
        content: file.2.into(),
        more: file.3,
    };
    files.iter().map(staged).collect()
}

fn sums(world: &World, most: u32) -> (Vec<FileDigest>, usize) {
    let (mut all, mut from, mut pages) = (Vec::new(), None, 0);
    loop {
        pages += 1;
        match world.execute(WorkspaceOp::Sums { after: from, bounds: SearchLimits { most, ..ALL } }) {
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
fn staged_files_are_moved_to_their_paths_together() {
    let world = World::new();
    world.file("there/old", "old");
    let work = world.work();
    work.stage(STAGE, true, &files(&[("a", 0o600, "on", false), ("there/x/b", 0o4777, "b", false)])).unwrap();
    work.stage(STAGE, false, &files(&[("a", 0o444, "e", true), ("there/c", 0o644, "", false)])).unwrap();
    assert_eq!(world.list("").len(), 1, "staged files must not be listed");
    work.unstage(STAGE).unwrap();
    assert_eq!([world.has("a"), world.has("there/x/b"), world.has("there/old")], ["one", "b", "old"]);
    let mode = |path: &str| fs::metadata(world.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode("a"), mode("there/x/b"), mode("there/c")], [0o444, 0o755, 0o644]);
    assert!(!world.path(STAGE).exists());
}

#[test]
fn old_staging_directories_are_removed_and_paths_cannot_leave_a_new_one() {
    let world = World::new();
    world.file(".coracle-aaaaaaaaaaaaaaaa.tmp/half", "half");
    let work = world.work();
    work.stage(STAGE, true, &files(&[])).unwrap();
    assert!(!world.path(".coracle-aaaaaaaaaaaaaaaa.tmp").exists());
    for invalid in ["../x", "/x", "a//b", "a/./b", "", "a/..", "a\0"] {
        assert!(work.stage(STAGE, false, &files(&[(invalid, 0o644, "x", false)])).is_err(), "{invalid:?}");
    }
    world.link(&format!("{STAGE}/out"), "../..");
    assert!(work.stage(STAGE, false, &files(&[("out/x", 0o644, "x", false)])).is_err());
    assert!(work.stage(STAGE, false, &files(&[("out", 0o644, "x", false)])).is_err());
    for invalid in ["..", "a", ".coracle-x.tmp", ""] {
        assert!(work.stage(invalid, true, &files(&[])).is_err() && work.unstage(invalid).is_err(), "{invalid:?}");
    }
    assert_eq!(fs::read_dir(world.dir.path()).unwrap().count(), 2, "the workspace and the secret");
}

#[test]
fn every_file_is_reported_once_with_any_page_size() {
    let world = World::new();
    for path in ["a", "b/c", "b/d/e", "b-", "z"] {
        world.file(path, path);
    }
    world.link("b/l", "/etc/passwd");
    let (whole, _) = sums(&world, 1000);
    let listed: Vec<_> = whole.iter().map(|it| (it.path.as_str(), it.sha256.is_some(), it.target.as_deref())).collect();
    let file = |path| (path, true, None);
    assert_eq!(
        listed,
        [file("a"), file("b/c"), file("b/d/e"), ("b/l", false, Some("/etc/passwd")), file("b-"), file("z")]
    );
    let (pieces, pages) = sums(&world, 1);
    assert_eq!((pieces, pages), (whole, 6));
}

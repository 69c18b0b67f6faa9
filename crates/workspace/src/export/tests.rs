//! Changes, from untrusted replies of a guest.

use coracle_protocol::workspace::{EntryKind, FileDigest};
use coracle_runtime::{Baseline, BaselineFile};
use proptest::prelude::*;

use super::{ChangeKind, changes};

fn sum(path: &str, content: &str, mode: u32) -> FileDigest {
    let sha256 = Some(content.to_owned());
    FileDigest { path: path.into(), kind: EntryKind::File, size: 1, mode, sha256, target: None, odd: false }
}

fn baseline(files: &[(&str, &str)]) -> Baseline {
    let file = |it: &(&str, &str)| (it.0.to_owned(), BaselineFile { sha256: it.1.into(), mode: 0o644, size: 1 });
    Baseline { files: files.iter().map(file).collect(), ..Baseline::default() }
}

#[test]
fn files_are_added_changed_and_deleted() {
    let link = FileDigest { kind: EntryKind::Symlink, sha256: None, ..sum("linked", "", 0o777) };
    let now =
        [sum("same", "a", 0o100_664), sum("mode", "a", 0o755), sum("text", "b", 0o644), sum("new", "a", 0o644), link];
    let baseline = baseline(&[("same", "a"), ("mode", "a"), ("text", "a"), ("gone", "a"), ("linked", "a")]);
    let changes = changes(&baseline, &now);
    let listed: Vec<_> = changes.files.iter().map(|it| (it.path.as_str(), it.kind())).collect();
    use ChangeKind::{Added, Changed, Deleted};
    assert_eq!(listed, [("gone", Deleted), ("mode", Changed), ("new", Added), ("text", Changed)]);
    assert_eq!(changes.passed.len(), 1, "a file that became a link is not deleted: {:?}", changes.passed);
}

proptest! {
    #[test]
    fn only_plain_names_travel(path in "[./a\0]{0,6}", odd in any::<bool>()) {
        let changes = changes(&Baseline::default(), &[FileDigest { odd, ..sum(&path, "x", 0o6777) }]);
        for change in &changes.files {
            prop_assert!(!odd && !change.path.starts_with('/') && !change.path.is_empty());
            prop_assert!(change.path.split('/').all(|it| !["", ".", ".."].contains(&it)), "{:?}", change.path);
            prop_assert_eq!(change.new.as_ref().map(|it| it.mode), Some(0o755), "no bit beyond 0755");
        }
        prop_assert_eq!(changes.files.len() + changes.passed.len(), 1);
    }
}

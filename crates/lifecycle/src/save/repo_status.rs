//! Reads `git status --porcelain=v2 --branch -z`.

use std::path::Path;

use coracle_archive::transfer::plain_name;

use super::limits::PRUNED;

/// Bytes of a branch's name.
const MAX_NAME: usize = 1024;

/// Which fields of a record are the name and the mode of the file in the work tree, from 0.
#[derive(Clone, Copy)]
struct FieldIndexes {
    name: usize,
    mode: usize,
}

const CHANGED: FieldIndexes = FieldIndexes { name: 7, mode: 4 };
const RENAMED: FieldIndexes = FieldIndexes { name: 8, mode: 4 };
const UNMERGED: FieldIndexes = FieldIndexes { name: 9, mode: 5 };

/// What git reports of a work tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepoStatus {
    /// The commit that is checked out.
    pub head: Option<String>,
    /// The branch that is checked out.
    pub branch: Option<String>,
    /// How many tracked files differ from the commit.
    pub dirty: u64,
    /// How many files are neither tracked nor ignored.
    pub untracked: u64,
    /// How many tracked files are in conflict.
    pub unmerged: u64,
    /// Something is staged.
    pub(super) staged: bool,
    /// Files that differ from the commit, and those that are not tracked. Relative to the tree.
    pub(super) changed: Vec<String>,
    /// Directories that are repositories of their own, or hold nothing that git would name.
    pub(super) nested: Vec<String>,
    pub(super) deleted: Vec<String>,
    /// Names that are no paths below the tree.
    pub(super) odd: Vec<String>,
    /// Commits are on no remote.
    pub(super) unpushed: bool,
}

impl RepoStatus {
    /// The command that prints what [`parse`](Self::parse) reads.
    pub const COMMAND: &[&str] =
        &["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--ignore-submodules=all"];

    /// Reads what git printed, which may be anything.
    #[must_use]
    pub fn parse(output: &[u8]) -> Self {
        let mut status = Self::default();
        let mut records = output.split(|it| *it == 0);
        while let Some(record) = records.next() {
            let Some((kind, rest)) = record.split_first_chunk::<2>() else { continue };
            match kind {
                b"# " => status.header(rest),
                b"? " => status.add_untracked(rest),
                // XY, submodule, three modes, two objects, name.
                b"1 " => status.add_tracked(rest, CHANGED),
                b"2 " => {
                    status.add_tracked(rest, RENAMED);
                    // The name that it had.
                    records.next();
                }
                // XY, submodule, four modes, three objects, name.
                b"u " => {
                    status.unmerged += 1;
                    status.add_tracked(rest, UNMERGED);
                }
                _ => {}
            }
        }
        status
    }

    /// How many files differ from the commit.
    #[must_use]
    pub fn uncommitted(&self) -> u64 {
        self.dirty + self.untracked
    }

    fn header(&mut self, text: &[u8]) {
        let Some((name, value)) = std::str::from_utf8(text).ok().and_then(|it| it.split_once(' ')) else { return };
        let value = Some(value.to_owned()).filter(|it| it.len() <= MAX_NAME);
        match name {
            "branch.oid" => self.head = value.filter(|it| is_object_id(it)),
            "branch.head" => self.branch = value.filter(|it| it != "(detached)"),
            _ => {}
        }
    }

    /// Counts it. What can be had again is not among what would be lost.
    fn add_untracked(&mut self, name: &[u8]) {
        self.untracked += 1;
        match (name.strip_suffix(b"/"), plain(name)) {
            _ if is_pruned(name) => {}
            (_, Err(odd)) => self.odd.push(odd),
            (Some(_), Ok(name)) => self.nested.push(name),
            (None, Ok(name)) => self.changed.push(name),
        }
    }

    fn add_tracked(&mut self, record: &[u8], fields: FieldIndexes) {
        self.dirty += 1;
        let values: Vec<_> = record.splitn(fields.name + 1, |it| *it == b' ').collect();
        let (Some([x, _]), Some(mode), Some(name)) =
            (values.first().and_then(|it| it.first_chunk::<2>()), values.get(fields.mode), values.get(fields.name))
        else {
            return;
        };
        self.staged |= *x != b'.';
        match plain(name) {
            Err(odd) => self.odd.push(odd),
            Ok(name) if *mode == b"000000" => self.deleted.push(name),
            Ok(name) => self.changed.push(name),
        }
    }
    /// Whether nothing would be lost.
    pub(super) fn is_clean(&self) -> bool {
        let files = [&self.changed, &self.nested, &self.deleted, &self.odd];
        !self.staged && !self.unpushed && files.iter().all(|it| it.is_empty())
    }
}

/// SHA-1 or SHA-256 in hex, as git prints it.
#[must_use]
pub fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
}

/// Whether it is in a directory whose content can be recreated.
fn is_pruned(name: &[u8]) -> bool {
    let mut dirs: Vec<_> = name.split(|byte| *byte == b'/').collect();
    dirs.pop();
    dirs.iter().any(|dir| PRUNED.iter().any(|pruned| pruned.as_bytes() == *dir))
}

fn plain(name: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(name).ok();
    let name = || String::from_utf8_lossy(name).escape_debug().to_string();
    text.and_then(|it| plain_name(Path::new(it))).filter(|it| !it.is_empty()).ok_or_else(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_whatever_names_there_are() {
        let output = [
            "# branch.oid 0123456789012345678901234567890123456789",
            "# branch.head main",
            "# branch.ab +1 -0",
            "1 .M N... 100644 100644 100644 aa aa a b\nc",
            "1 A. N... 000000 100644 100644 00 bb staged",
            "1 .D N... 100644 100644 000000 aa aa gone",
            "1 D. N... 100644 000000 000000 aa 00 gone too",
            "2 R. N... 100644 100644 100644 aa aa R100 new",
            "old",
            "u UU N... 100644 100644 100644 100644 aa bb cc both",
            "? dir/own",
            "? nested/",
            "? node_modules/it/index.js",
            "? app/target/",
            "? target",
            "1 .M N... 100644 100644 100644 aa aa target/tracked",
            "? ../../etc/shadow",
            "? /etc/shadow",
            "1 x",
            "nonsense",
            "",
        ];
        let status = RepoStatus::parse(output.join("\0").as_bytes());
        assert_eq!(status.head.as_deref().map(str::len), Some(40));
        assert_eq!(status.branch.as_deref(), Some("main"));
        assert_eq!(status.changed, ["a b\nc", "staged", "new", "both", "dir/own", "target", "target/tracked"]);
        assert_eq!((status.deleted, status.nested), (vec!["gone".into(), "gone too".into()], vec!["nested".into()]));
        assert_eq!(status.odd, ["../../etc/shadow", "/etc/shadow"]);
        assert!(status.staged);
        assert_eq!((status.dirty, status.untracked, status.unmerged), (8, 7, 1));
    }

    #[test]
    fn a_tree_before_its_first_commit_has_no_head() {
        let status = RepoStatus::parse(b"# branch.oid (initial)\0# branch.head main\0? \xff\0");
        assert_eq!((status.head, status.odd.len(), status.staged), (None, 1, false));
    }
}
